"""A matrix of unreduced losses in place of a dict: the same step as with the labelled entries of every task alone."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

import excessmtl
from choices import METHODS, PAPER, ROBUST, UNIFORM, Method, both_forms
from models import BATCH, DEVICE, FEATURES, TASKS, WIDTH, OneHead
from steps import assert_same, gradients, take_step

each_method = pytest.mark.parametrize("method", METHODS, ids=str)
HOLES = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0]] * (BATCH // 4), dtype=torch.bool, device=DEVICE)


def started(method, **options):
    torch.manual_seed(1)
    model = OneHead()
    targets = torch.rand(BATCH, 3, device=DEVICE).masked_fill(~HOLES, torch.nan)
    return model, method.create(model.trunk, **options), torch.randn(BATCH, FEATURES, device=DEVICE), targets


def columns(outputs, targets, labelled=HOLES):
    """The losses of the labelled entries alone, task by task."""
    pairs = [(outputs[:, i][labelled[:, i]], targets[:, i][labelled[:, i]]) for i in range(3)]
    return {task: mse_loss(*pair) for task, pair in zip(TASKS, pairs, strict=True)}


def taken(balancer, model, losses, scalar=False, **options):
    model.zero_grad()
    return take_step(balancer, losses, scalar, **options), gradients(model)


@both_forms
@pytest.mark.parametrize("marked", ["nan", "mask"])
@each_method
def test_the_step_is_that_of_the_labelled_entries(method, marked, scalar):
    model, balancer, x, targets = started(method)
    other, twin = copy.deepcopy((balancer, model))
    mask = {task: HOLES[:, i] for i, task in enumerate(TASKS)}
    for _ in range(2):
        matrix = mse_loss(model(x), targets, reduction="none")
        assert matrix.isnan().any()
        found = taken(balancer, model, matrix, scalar, mask=None if marked == "nan" else HOLES)
        wanted = taken(other, twin, columns(twin(x), targets), scalar, mask=mask)
        assert found[0].skipped == ()
        torch.testing.assert_close(found[0].weights, wanted[0].weights, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[0].losses, wanted[0].losses)
        torch.testing.assert_close(found[1], wanted[1], rtol=1e-4, atol=1e-5)


def columns_again(matrix):
    """Columns that are taken out of a matrix and put together."""
    return torch.cat([2 * matrix[:, :1], torch.stack([matrix[:, 1], matrix[:, 2]], dim=1)], dim=1)


def of_entries(outputs, targets):
    return mse_loss(outputs, targets, reduction="none")


REARRANGED = {
    "square": lambda outputs, targets, scale: (outputs - targets) ** 2,
    "clamped": lambda outputs, targets, scale: 0.5 * (outputs - targets).abs().clamp(max=2) + 1,
    "binary": lambda outputs, targets, scale: binary_cross_entropy_with_logits(outputs, targets, reduction="none"),
    "stacked": lambda outputs, targets, scale: torch.stack(
        [of_entries(outputs[:, i], targets[:, i]) for i in range(3)], dim=1
    ),
    "cat of rows": lambda outputs, targets, scale: torch.cat(
        [of_entries(outputs[:3], targets[:3]), of_entries(outputs[3:], targets[3:])]
    ),
    "transposed": lambda outputs, targets, scale: of_entries(outputs.T, targets.T).T,
    "reshaped": lambda outputs, targets, scale: of_entries(outputs.flatten(), targets.flatten()).reshape(-1, 3),
    "squeezed": lambda outputs, targets, scale: of_entries(outputs[..., None], targets[..., None]).squeeze(2),
    "mean over a last dimension": lambda outputs, targets, scale: torch.stack(
        [of_entries(outputs, targets)] * 2, 2
    ).mean(2),
    "columns again": lambda outputs, targets, scale: columns_again(of_entries(outputs, targets)),
    "in another order": lambda outputs, targets, scale: of_entries(outputs[:, [2, 0, 1]], targets[:, [2, 0, 1]])[
        :, [1, 2, 0]
    ],
    "learned factor": lambda outputs, targets, scale: of_entries(outputs, targets) * scale,
    "learned factor first": lambda outputs, targets, scale: scale.exp() * of_entries(outputs, targets) + scale,
    "learned quotient": lambda outputs, targets, scale: of_entries(outputs, targets) / (2 * scale**2) + scale.log(),
    "learned factor of all": lambda outputs, targets, scale: of_entries(outputs, targets) * scale.prod(),
    "learned factor of outputs": lambda outputs, targets, scale: of_entries(outputs * scale, targets),
}


@pytest.mark.filterwarnings("ignore:.*parameters outside shared")  # the learned factor
@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
@pytest.mark.parametrize("form", REARRANGED)
def test_a_matrix_with_nan_that_was_rearranged_or_scaled(form, method):
    def three_steps(fill):
        model, balancer, x, targets = started(method)
        scale = nn.Parameter(torch.tensor([0.5, 1.0, 2.0], device=DEVICE))
        optimiser = torch.optim.SGD([*model.parameters(), scale], 0.1)
        for _ in range(3):
            matrix = REARRANGED[form](model(x), targets.nan_to_num() if fill else targets, scale)
            assert fill or torch.equal(matrix.isnan(), ~HOLES)
            optimiser.zero_grad()
            step = balancer.backward(matrix, mask=HOLES if fill else None)
            assert step.skipped == ()
            optimiser.step()
        return step.weights, gradients(model), scale.grad

    torch.testing.assert_close(three_steps(fill=False), three_steps(fill=True), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_a_matrix_over_time(method):
    torch.manual_seed(1)
    model = OneHead()
    balancer = method.create(model.trunk)
    other, twin = copy.deepcopy((balancer, model))
    x, targets = torch.randn(BATCH, 5, FEATURES, device=DEVICE), torch.randn(BATCH, 3, 5, device=DEVICE)
    labelled = (torch.rand(BATCH, 3, 5, device=DEVICE) < 0.7) & HOLES[..., None]
    found = taken(balancer, model, mse_loss(model(x).mT, targets, reduction="none"), mask=labelled)
    outputs = twin(x).mT
    mask = {task: labelled[:, i].any(1) for i, task in enumerate(TASKS)}
    wanted = taken(other, twin, columns(outputs, targets, labelled), mask=mask)
    torch.testing.assert_close(found[0].weights, wanted[0].weights, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-4, atol=1e-5)
    by_sample = mse_loss(model(x).mT, targets, reduction="none")
    torch.testing.assert_close(balancer.backward(by_sample, mask=HOLES).losses[0], by_sample[:, 0][HOLES[:, 0]].mean())


@each_method
def test_a_task_without_a_label_is_missing(method):
    model, balancer, x, targets = started(method)
    targets[:, 1] = torch.nan
    before = balancer.state_dict()
    step, found = taken(balancer, model, mse_loss(model(x), targets, reduction="none"))
    assert step.skipped == ()
    assert step.losses.isnan().tolist() == [False, True, False]
    assert not found["head.weight"][1].any()
    assert_same(before["memory.skipped"], balancer.state_dict()["memory.skipped"])


@pytest.mark.parametrize(
    ("losses", "mask", "match"),
    [
        (torch.zeros(BATCH, 2), None, r"losses must be \[batch, 3 tasks, ...\].*found shape \(8, 2\)"),
        (torch.zeros(BATCH), None, "losses must be a dict.*or a matrix"),
        (torch.zeros(BATCH, 3), torch.ones(BATCH, 3), "mask must be a bool tensor of shape"),
        (torch.zeros(BATCH, 3), torch.ones(BATCH, dtype=torch.bool), "mask must be a bool tensor of shape"),
        (torch.zeros(BATCH, 3), {"a": torch.ones(BATCH, dtype=torch.bool)}, "mask must be a bool tensor of shape"),
        (torch.zeros(BATCH, 3), None, "has no graph"),
    ],
)
def test_what_is_refused(losses, mask, match):
    with pytest.raises(ValueError, match=match):
        UNIFORM.create(OneHead().trunk).backward(losses, mask=mask)


# ------------------------------------------------------------------ one linear head for all tasks


@pytest.mark.parametrize("shared", ["module", "parameters"])
@pytest.mark.parametrize("kind", ["matrix", "columns"])
@pytest.mark.parametrize("heads", ["weighted", "unweighted"])
@pytest.mark.parametrize(
    "method", [Method("excess"), PAPER, Method("static", {"weights": {"a": 0.1, "b": 0.2, "c": 0.7}})], ids=str
)
def test_every_row_of_one_linear_head_is_a_task_of_its_own(method, heads, kind, shared):
    """No warning, and unweighted heads get the gradient of the task alone."""
    torch.manual_seed(1)
    model = OneHead()
    if shared == "parameters" and method.name == "excess" and method is not PAPER:
        pytest.skip("needs the representation")
    balancer = method.create(model.trunk if shared == "module" else list(model.trunk.parameters()), heads=heads)
    x, targets = torch.randn(BATCH, FEATURES, device=DEVICE), torch.rand(BATCH, 3, device=DEVICE)
    outputs = model(x)
    matrix = mse_loss(outputs, targets, reduction="none")
    (plain,) = torch.autograd.grad(matrix.mean(0).sum(), model.head.weight, retain_graph=True)
    by_column = {task: mse_loss(outputs[:, i], targets[:, i]) for i, task in enumerate(TASKS)}
    step = balancer.backward(matrix if kind == "matrix" else by_column)
    wanted = plain if heads == "unweighted" else plain * step.weights[:, None]
    torch.testing.assert_close(model.head.weight.grad, wanted)


def test_a_layer_below_one_head_for_all_is_still_told():
    """Its entries are moved by several tasks: the weighted gradient, as without a matrix."""
    torch.manual_seed(1)
    model, neck = OneHead(), nn.Linear(WIDTH, WIDTH).to(DEVICE)
    balancer = ROBUST.create(model.trunk)
    outputs = model.head(neck(model.trunk(torch.randn(BATCH, FEATURES, device=DEVICE))))
    with pytest.warns(UserWarning, match=r"4 parameters outside shared .*\(16, 16\)"):
        balancer.backward(mse_loss(outputs, torch.zeros_like(outputs), reduction="none"))


def test_a_layer_of_as_many_outputs_as_tasks_gets_the_weighted_gradient():
    torch.manual_seed(1)
    trunk, neck = nn.Linear(FEATURES, WIDTH).to(DEVICE), nn.Linear(WIDTH, 3).to(DEVICE)
    heads = [nn.Linear(3, 1).to(DEVICE) for _ in TASKS]
    balancer = ROBUST.create(trunk)
    z = neck(trunk(torch.randn(BATCH, FEATURES, device=DEVICE)))
    losses = {task: head(z).square().mean() for task, head in zip(TASKS, heads, strict=True)}
    plain = [torch.autograd.grad(loss, neck.weight, retain_graph=True)[0] for loss in losses.values()]
    step = balancer.backward(losses)
    torch.testing.assert_close(neck.weight.grad, sum(w * g for w, g in zip(step.weights, plain, strict=True)))


def test_a_learned_factor_below_an_operation_that_mixes_entries():
    x, y, mask = torch.randn(16, 8), torch.randn(16, 3), torch.rand(16, 3) < 0.6
    encoder, head, factor = nn.Linear(8, 16), nn.Linear(16, 3), nn.Parameter(torch.ones(3))

    def losses():
        return ((head(encoder(x)) * factor).cumsum(1) - y).square()

    by_hand = losses()
    (right,) = torch.autograd.grad(sum(by_hand[mask[:, i], i].mean() for i in range(3)), factor)
    excessmtl.create("uniform", tasks=["a", "b", "c"], shared=encoder).backward(losses(), mask=mask)
    torch.testing.assert_close(factor.grad, right)
