"""Gradients that are let go as soon as they are reduced lead to the weights and gradients of those that are kept."""

import copy

import pytest
import torch
from torch import nn

import models
from excessmtl.engine.per_task import ParameterRows
from excessmtl.fast import engine as engine_module
from excessmtl.fast import streaming as streaming_module
from excessmtl.fast.engine import FastEngine
from excessmtl.fast.thresholds import Thresholds
from models import BATCH, DEVICE, FEATURES, PAPER, TASKS, UNIFORM, assert_same, batch, gradients, losses_of, mlp

each_form = pytest.mark.parametrize("form", ["fp32", "bf16", "factored"])


def without_b(losses):
    return {**losses, "b": None}


def nan_in_b(losses):
    return {**losses, "b": losses["b"] * torch.nan}


def infinite_head(losses):
    return {**losses, "c": losses["c"] * 1e30 * 1e30}


def steps(model, change=None, scalar=False, count=4, **options):
    balancer = PAPER.create(model.trunk, step_size=0.1, **options)
    found = []
    for seed in range(count):
        torch.manual_seed(seed)
        x, targets = batch()
        losses = losses_of(model(x), targets)
        losses = change(losses) if change and seed == 1 else losses
        model.zero_grad()
        if scalar:
            balancer(losses).backward()
            step = balancer.last_step
        else:
            step = balancer.backward(losses)
        found.append({**gradients(model), "weights": step.weights, "risks": step.excess_risks.nan_to_num(-1)})
    return found, balancer


def compare(model, form="fp32", **arguments):
    wanted, kept = steps(copy.deepcopy(model), accumulators=form, **arguments)
    # In bf16 the counter goes on with every part, so sums are rounded by other chances.
    tolerance = {"rtol": 1e-2, "atol": 1e-3} if form == "bf16" else {"rtol": 1e-4, "atol": 1e-6}
    for at_once in (1, 2, 3):
        found, streamed = steps(
            copy.deepcopy(model), accumulators=form, streaming=True, tasks_at_once=at_once, **arguments
        )
        torch.testing.assert_close(found, wanted, **tolerance)
        assert torch.equal(streamed.skipped, kept.skipped)
        if form != "bf16":
            torch.testing.assert_close(streamed.state, kept.state, rtol=1e-4, atol=1e-6)


@each_form
@pytest.mark.parametrize("change", [None, without_b, nan_in_b, infinite_head])
def test_as_if_all_gradients_were_kept(form, change):
    compare(mlp(), form, change=change)


@pytest.mark.parametrize("options", [{"heads": "weighted"}, {"every": 2}, {"scale": 3.0}, {"normalize": "initial"}])
def test_options(options):
    compare(mlp(), **options)


def test_the_scalar_form():
    compare(mlp(), scalar=True)


def test_frozen_parameters():
    model = mlp()
    model.trunk[0].weight.requires_grad_(False)
    compare(model)


def test_a_gradient_that_overflows_in_the_trunk():
    class Steep(nn.Module):
        def forward(self, x):
            return x + 1e10 * (x - x.detach())

    def overflowing(losses):
        return {**losses, "b": losses["b"] * 1e30}

    model = mlp()
    model.trunk.append(Steep())
    compare(model, change=overflowing)
    _, balancer = steps(model, overflowing, streaming=True)
    assert balancer.skipped.tolist() == [0, 1, 0]


def test_no_more_gradients_are_alive_than_tasks_are_walked_together(monkeypatch):
    made = []

    class Counted(ParameterRows):
        def __init__(self, parameters, tasks):
            super().__init__(parameters, tasks)
            made.append(tasks)

    monkeypatch.setattr(streaming_module, "ParameterRows", Counted)
    for at_once, expected in ((1, [1, 1, 1]), (2, [1, 2]), (3, [3])):
        made.clear()
        steps(mlp(), count=1, streaming=True, tasks_at_once=at_once)
        assert made == expected


def test_hooks_on_shared_parameters_act_once():
    model, calls = mlp(), []
    model.trunk[0].weight.register_hook(lambda gradient: calls.append(gradient.shape))
    steps(model, count=1, streaming=True)
    assert calls == [model.trunk[0].weight.shape]


def test_the_graph_is_freed():
    model = mlp()
    balancer = PAPER.create(model.trunk, streaming=True)
    z = model.trunk(torch.randn(BATCH, FEATURES, device=DEVICE))
    balancer.backward({task: head(z).square().mean() for task, head in model.heads.items()})
    with pytest.raises(RuntimeError, match="second time"):
        z.sum().backward()


def refused(balancer, model, losses, message, **arguments):
    before = copy.deepcopy(dict(balancer.state_dict()))
    with pytest.raises(ValueError, match=message):
        balancer.backward(losses, **arguments)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert_same(dict(balancer.state_dict()), before)


def test_what_needs_the_gradients_is_refused():
    model = mlp()
    balancer = PAPER.create(model.trunk, streaming=True)
    x, targets = batch()
    losses = losses_of(model(x), targets)
    scaler = torch.amp.GradScaler(DEVICE.type)
    refused(balancer, model, losses, "streaming does not go with accumulate=True", accumulate=True)
    refused(balancer, model, losses, "streaming does not go with scaler", scaler=scaler)


def test_tasks_that_do_not_meet_at_one_tensor_are_refused():
    model = mlp()
    balancer = PAPER.create(list(model.trunk.parameters()), streaming=True)
    x, targets = batch()
    refused(balancer, model, losses_of(model(x), targets), "streaming needs tasks that meet")
    balancer = PAPER.create(model.trunk, streaming=True)
    losses = {task: model.heads[task](model.trunk(x)).square().mean() for task in TASKS}
    refused(balancer, model, losses, "streaming needs tasks that meet")


@pytest.mark.parametrize("method", [UNIFORM, PAPER], ids=str)
def test_methods_that_do_not_stream_refuse_it(method):
    options = {"probe": "representation"} if method is PAPER else {}
    with pytest.raises(ValueError, match="streaming is not used by"):
        method.create(mlp().trunk, streaming=True, **options)


@pytest.fixture
def seen(monkeypatch):
    """How often gradients were reduced, with three small tasks taken for many large ones."""
    few = Thresholds(streaming_tasks=3, streaming_entries=1)
    monkeypatch.setattr(models, "ENGINE", lambda: FastEngine(thresholds=few))
    found = []

    class Counted(streaming_module.ReducedRows):
        def __init__(self, *arguments):
            found.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(engine_module, "ReducedRows", Counted)
    return found


def test_many_large_gradients_are_let_go_without_being_asked(seen):
    model = mlp()
    found, streamed = steps(copy.deepcopy(model))
    assert len(seen) == 4
    wanted, kept = steps(copy.deepcopy(model), streaming=False)
    assert len(seen) == 4
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(streamed.state, kept.state, rtol=1e-4, atol=1e-6)


def test_but_not_where_something_needs_them(seen):
    model = mlp()
    balancer = PAPER.create(model.trunk)
    x, targets = batch()
    balancer.backward(losses_of(model(x), targets), accumulate=True)
    balancer.backward(losses_of(model(x), targets))
    balancer.backward(losses_of(model(x), targets), scaler=torch.amp.GradScaler(DEVICE.type, init_scale=2.0))
    # The tasks meet the shared parameters nowhere in one tensor.
    by_list = PAPER.create(list(model.trunk.parameters()))
    by_list.backward(losses_of(model(x), targets))
    UNIFORM.create(model.trunk).backward(losses_of(model(x), targets))
    assert not seen
    balancer.backward(losses_of(model(x), targets))
    assert len(seen) == 1
