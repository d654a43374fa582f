"""One linear layer for all tasks: recognised, and the same as one backward pass per task."""

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, huber_loss, l1_loss, log_softmax, mse_loss

import excessmtl
from choices import PAPER, ROBUST, UNIFORM, Method, Noting, finds_selections
from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.one_pass import WAYS
from models import BATCH, DEVICE, FEATURES, TASKS, OneHead

METHODS = [ROBUST, UNIFORM, PAPER, Method("mgda", {"probe": "representation"}), Method("graddrop")]


def matrix_of(loss):
    return lambda outputs, targets: (loss(outputs, targets, reduction="none"), {})


def by_task(outputs, targets):
    losses, mask = excessmtl.losses.by_task(outputs, targets, TASKS)
    return losses, {"mask": mask}


def columns(outputs, targets):
    return {task: mse_loss(outputs[:, i], targets[:, i].nan_to_num(0)) for i, task in enumerate(TASKS)}, {}


def one_missing(outputs, targets):
    losses, options = columns(outputs, targets)
    return {**losses, "b": None}, options


def own_formula(outputs, targets):
    return (outputs.sigmoid() - targets.nan_to_num(0)).square() * 2 + outputs.abs() / 3, {}


def infinite(outputs, targets):
    losses, options = columns(outputs, targets)
    return {**losses, "c": losses["c"] * torch.inf}, options


RECOGNISED = {
    "mse": matrix_of(mse_loss),
    "l1": matrix_of(l1_loss),
    "huber": matrix_of(huber_loss),
    "bce": matrix_of(lambda out, targets, **how: binary_cross_entropy_with_logits(out, targets.sigmoid(), **how)),
    "own formula": own_formula,
    "by_task": by_task,
    "columns": columns,
    "one missing": one_missing,
    "infinite": infinite,
}
BY_COLUMN = ("by_task", "columns", "one missing", "infinite")


def across(outputs, targets):
    return -log_softmax(outputs, 1) * targets.nan_to_num(0), {}


def centred(outputs, targets):
    return mse_loss(outputs - outputs.mean(1, keepdim=True), targets, reduction="none"), {}


def turned(outputs, targets):
    return columns(outputs.flip(1), targets)


def in_reverse(outputs, targets):
    return {task: mse_loss(outputs[:, 2 - i], targets[:, i]) for i, task in enumerate(TASKS)}, {}


def unbound_in_reverse(outputs, targets):
    columns = mse_loss(outputs, targets, reduction="none").sum(0).unbind()
    return dict(zip(TASKS, reversed(columns), strict=True)), {}


def one_column_for_two(outputs, targets):
    losses, options = columns(outputs, targets)
    return {**losses, "b": losses["b"] + outputs[:, 0].square().mean()}, options


OTHERS = {
    "across": across,
    "centred": centred,
    "turned": turned,
    "in reverse": in_reverse,
    "unbound in reverse": unbound_in_reverse,
    "one column for two": one_column_for_two,
}


def run(method, engine, make, holes=False, bias=True, steps=4, accumulate=False, **options):
    torch.manual_seed(0)
    model = OneHead(40, bias)
    balancer = method.create(model.trunk, engine=engine, **options)
    found = []
    for step in range(steps):
        x, targets = torch.randn(BATCH, FEATURES, device=DEVICE), torch.randn(BATCH, len(TASKS), device=DEVICE)
        if holes:
            targets = targets.masked_fill(torch.rand_like(targets) < 0.3, torch.nan)
        losses, arguments = make(model(x), targets)
        if step % 2 == 0:
            model.zero_grad()
        balancer.backward(losses, accumulate=accumulate and step % 2 == 0, **arguments)
        found += [[one.grad.clone() for one in model.parameters() if one.grad is not None], balancer.last_step.numbers]
    return found


def assert_same(method, make, **options):
    engine = Noting()
    found = run(method, engine, make, **options)
    wanted = run(method, AnyGraph(), make, **options)
    torch.testing.assert_close(found, wanted, rtol=2e-4, atol=1e-6, equal_nan=True)
    return engine.way != "any graph"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=finds_selections if name in BY_COLUMN else ()) for name in RECOGNISED]
)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_one_backward_pass_gives_what_one_per_task_gives(method, name):
    assert assert_same(method, RECOGNISED[name], holes=name in ("mse", "by_task"), bias=name != "l1")


@finds_selections
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_micro_batches(method):
    assert assert_same(method, RECOGNISED["by_task"], holes=True, accumulate=True)


@pytest.mark.parametrize("heads", ["weighted", "unweighted"])
def test_either_weighting_of_the_layer(heads):
    assert assert_same(ROBUST, RECOGNISED["mse"], heads=heads)


@pytest.mark.filterwarnings("ignore:2 parameters outside shared")
@pytest.mark.parametrize("name", OTHERS)
def test_what_mixes_columns_is_not_taken_for_it(name):
    assert not assert_same(ROBUST, OTHERS[name])


@finds_selections
@pytest.mark.parametrize(("ways", "way"), [(WAYS, "OneHead"), (WAYS - {"one head"}, "any graph")])
def test_it_is_one_of_the_ways(ways, way):
    engine = Noting(ways=ways)
    run(UNIFORM, engine, columns, steps=1)
    assert engine.way == way
