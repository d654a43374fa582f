"""One bad task, or a loss scale too large: the others train on as if nothing had happened."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from models import (
    DEVICE,
    EXCESS,
    GRADNORM,
    METHODS,
    PAPER,
    ROBUST,
    TASKS,
    UNIFORM,
    assert_same,
    batch,
    gradients,
    losses_of,
    mlp,
    trained,
)

FEW = [ROBUST, PAPER, UNIFORM, GRADNORM]
each_method = pytest.mark.parametrize("method", FEW, ids=str)
with_and_without_z = pytest.mark.parametrize(
    ("method", "shared"), [*((method, "module") for method in FEW), (PAPER, "list"), (UNIFORM, "list")], ids=str
)


def nan_loss(loss, z):
    return loss * torch.nan


def infinite_loss(loss, z):
    return loss / torch.zeros_like(loss)


def infinite_constant(loss, z):
    """An infinite value with a finite gradient."""
    return loss + torch.inf


def infinite_gradient(loss, z):
    """A finite value with an infinite gradient at the representation."""
    return loss + (z - z.detach()).abs().sqrt().sum()


def one_nan_in_the_gradient(loss, z):
    return loss + (z.flatten()[0] - z.flatten()[0].detach()).square().sqrt()


BAD = [nan_loss, infinite_loss, infinite_constant, infinite_gradient, one_nan_in_the_gradient]


def run(balancer, model, seed, change=None, form="backward", **arguments):
    """One step on a batch that depends on the seed alone; `change` makes the loss of `b` something else."""
    torch.manual_seed(seed)
    x, targets = batch()
    z = model.trunk(x)
    losses = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    losses["b"] = None if change == "missing" else change(losses["b"], z) if change else losses["b"]
    model.zero_grad()
    if form == "scalar":
        balancer(losses, **arguments).backward()
        return balancer.last_step
    return balancer.backward(losses, **arguments)


def twins(method, shared="module"):
    """Two equal models with balancers, three steps into training."""
    model = mlp()
    balancer = method.create(model.trunk if shared == "module" else list(model.trunk.parameters()))
    trained(balancer, model, 3)
    return (model, balancer), copy.deepcopy((model, balancer))


def zeros_for_none(found):
    return {name: torch.zeros(()) if g is None or not g.any() else g for name, g in found.items()}


def compare_with_missing(method, bad, shared="module", form="backward"):
    """Up to rounding: a head that can be bad in this way may be walked in another manner than a missing one."""
    (model, balancer), (other_model, other) = twins(method, shared)
    before = balancer.state_dict()
    step = run(balancer, model, 5, bad, form)
    run(other, other_model, 5, "missing", form)
    assert step.skipped == ("b",)
    assert balancer.skipped.tolist() == [0, 1, 0]
    assert step.weights[1] == 0
    found, wanted = zeros_for_none(gradients(model)), zeros_for_none(gradients(other_model))
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(balancer.weights, other.weights)
    torch.testing.assert_close(balancer.state, other.state)
    for name, tensor in balancer.state.items():
        assert tensor.isfinite().all(), name
        if tensor.ndim and len(tensor) == len(TASKS) and method in EXCESS and name != "scores":
            assert torch.equal(tensor[1], before[f"memory.state_{name}"][1]), name
    assert balancer.weights.isfinite().all()


CASES = [(method, bad, "module", "backward") for method in METHODS for bad in (nan_loss, one_nan_in_the_gradient)]
CASES += [(method, bad, "list", "backward") for method in (PAPER, UNIFORM) for bad in BAD]
CASES += [(method, bad, "module", "scalar") for method in FEW for bad in (infinite_constant, infinite_gradient)]


@pytest.mark.parametrize(
    ("method", "bad", "shared", "form"), CASES, ids=[f"{m}-{bad.__name__}-{how}-{f}" for m, bad, how, f in CASES]
)
def test_others_get_what_they_get_without_it(method, bad, shared, form):
    compare_with_missing(method, bad, shared, form)


@pytest.mark.filterwarnings("ignore:every task of a step was left out")
@pytest.mark.parametrize("bad", [nan_loss, infinite_gradient], ids=lambda bad: bad.__name__)
@each_method
def test_all_tasks_bad(method, bad):
    model = mlp()
    balancer = method.create(model.trunk)
    trained(balancer, model, 3)
    before = balancer.state_dict()
    x, targets = batch()
    z = model.trunk(x)
    model.zero_grad()
    losses = {task: bad(mse_loss(model.heads[task](z), targets[task]), z) for task in TASKS}
    step = balancer.backward(losses)
    assert step.skipped == tuple(TASKS)
    assert all(g is None or not g.any() for g in gradients(model).values())
    after = balancer.state_dict()
    assert torch.equal(before["memory.weights"], after["memory.weights"])
    for name in balancer.state:
        assert after[f"memory.state_{name}"].isfinite().all()
    assert all(s.weights.isfinite().all() for s in trained(balancer, model, 2))


@pytest.mark.parametrize("method", [PAPER, UNIFORM, GRADNORM], ids=str)
def test_a_bad_micro_batch_loses_nothing_of_the_others(method):
    """The gradients of the good tasks in the bad micro-batch must arrive."""
    (model, balancer), (other_model, other) = twins(method, "list")
    for b, m, change in ((balancer, model, nan_loss), (other, other_model, "missing")):
        m.zero_grad()
        torch.manual_seed(3)
        for last in (False, True):
            x, targets = batch()
            z = m.trunk(x)
            losses = {task: mse_loss(m.heads[task](z), targets[task]) for task in TASKS}
            if not last:
                losses["b"] = None if change == "missing" else change(losses["b"], z)
            b.backward(losses, accumulate=not last)
    torch.testing.assert_close(zeros_for_none(gradients(model)), zeros_for_none(gradients(other_model)))


# ------------------------------------------------------------------ loss scaling


def fixed_scaler(scale):
    return torch.amp.GradScaler(DEVICE.type, init_scale=scale, growth_interval=10**6)


def take_step(balancer, losses, form, scaler=None):
    if form == "backward":
        return balancer.backward(losses, scaler=scaler)
    value = balancer(losses, scaler=scaler)
    (value if scaler is None else scaler.scale(value)).backward()
    return balancer.last_step


@pytest.mark.parametrize(
    ("method", "shared", "form"),
    [
        *((method, "module", "backward") for method in METHODS),
        *((method, "module", "scalar") for method in FEW),
        *((method, "list", "backward") for method in (PAPER, UNIFORM)),
    ],
    ids=str,
)
def test_statistics_do_not_see_the_scale(method, form, shared):
    (model, balancer), (other_model, other) = twins(method, shared)
    scaler = fixed_scaler(2.0**10)
    for seed in range(3):
        torch.manual_seed(seed)
        x, targets = batch()
        model.zero_grad()
        other_model.zero_grad()
        step = take_step(balancer, losses_of(model(x), targets), form, scaler)
        plain = take_step(other, losses_of(other_model(x), targets), form)
        torch.testing.assert_close(step.numbers, plain.numbers, equal_nan=True)
        for one, two in zip(model.parameters(), other_model.parameters(), strict=True):
            torch.testing.assert_close(one.grad / 2.0**10, two.grad)
    torch.testing.assert_close(balancer.state, other.state)


def overflowing(z):
    """A loss that is finite, with a gradient that overflows only when it is scaled."""
    return z.sum() * 1e30


@with_and_without_z
def test_an_overflow_reaches_the_scaler(method, shared):
    (model, balancer), _ = twins(method, shared)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = fixed_scaler(2.0**60)
    before, kept = balancer.state_dict(), copy.deepcopy(model.state_dict())
    step = run(balancer, model, 4, lambda loss, z: loss + overflowing(z), scaler=scaler)
    assert step.skipped == ()
    assert balancer.skipped.sum() == 0
    scaler.step(optimiser)
    scaler.update()
    assert scaler.get_scale() < 2.0**60
    assert_same(kept, model.state_dict())
    for name, now in balancer.state.items():
        assert torch.equal(before[f"memory.state_{name}"], now), name


@pytest.mark.filterwarnings("ignore:task .* left out of 10 batches in a row")
@with_and_without_z
def test_a_truly_infinite_gradient_does_not_stall_training(method, shared):
    (model, balancer), _ = twins(method, shared)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=2.0**5)
    moved = 0
    for seed in range(20):
        before = model.trunk[0].weight.detach().clone()
        run(balancer, model, seed, infinite_gradient, scaler=scaler)
        scaler.step(optimiser)
        scaler.update()
        moved += bool((model.trunk[0].weight != before).any())
    assert moved >= 10
    assert balancer.skipped[1] >= 10
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("dtype", "inside"), [(torch.float16, False), (torch.bfloat16, True)], ids=["after fp16", "inside bf16"]
)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_autocast_with_a_huge_loss_and_a_nan(method, dtype, inside):
    """Losses large enough to overflow fp16 when squared; statistics are not rounded."""
    model = mlp()
    balancer = method.create(model.trunk)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=2.0, enabled=dtype is torch.float16)
    first = [p.detach().clone() for p in model.parameters()]
    for number in range(6):
        x, targets = batch()
        optimiser.zero_grad()
        with torch.autocast(DEVICE.type, dtype):
            outputs = model(x)
            losses = {task: mse_loss(outputs[task].float(), targets[task]) for task in TASKS}
            losses["a"] = losses["a"] * 300
            losses["b"] = losses["b"] * (torch.nan if number == 3 else 1)
            with torch.autocast(DEVICE.type, dtype, enabled=inside):
                step = balancer.backward(losses, scaler=scaler)
        scaler.step(optimiser)
        scaler.update()
        assert step.skipped == (("b",) if number == 3 else ())
        assert step.weights.dtype == torch.float32
        assert step.weights.isfinite().all()
    assert all(tensor.dtype != dtype and tensor.isfinite().all() for tensor in balancer.state.values())
    assert all(p.isfinite().all() and (p != old).any() for p, old in zip(model.parameters(), first, strict=True))


def test_losses_of_different_types():
    model = mlp()
    x, targets = batch()
    trunks = {"module": (ROBUST, model.trunk), "list": (UNIFORM, list(model.trunk.parameters()))}
    for method, shared in trunks.values():
        balancer = method.create(shared)
        for form in ("backward", "scalar"):
            losses = losses_of(model(x), targets)
            losses = {"a": losses["a"].double(), "b": losses["b"].bfloat16(), "c": losses["c"]}
            assert take_step(balancer, losses, form).weights.isfinite().all()


@each_method
def test_a_nan_loss_is_reported_in_a_step_that_overflows(method):
    """The loss scale explains an infinite gradient, never a NaN loss."""
    model = mlp()
    balancer = method.create(model.trunk)
    x, targets = batch()
    z = model.trunk(x)
    losses = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    losses["a"], losses["b"] = losses["a"] + overflowing(z), losses["b"] * torch.nan
    step = balancer.backward(losses, scaler=fixed_scaler(2.0**60))
    assert step.skipped == ("b",)


def test_an_unfinished_step_is_forgotten_when_a_state_is_loaded():
    torch.manual_seed(0)
    trunk, head = nn.Linear(4, 4), nn.Linear(4, 1)
    balancer = excessmtl.create("mgda", tasks=["a"], shared=trunk)
    saved = balancer.state_dict()
    balancer.backward({"a": head(trunk(torch.ones(2, 4))).square().mean()}, accumulate=True)
    balancer.load_state_dict(saved)
    trunk.zero_grad()
    x = torch.randn(2, 4)
    balancer.backward({"a": head(trunk(x)).square().mean()})
    expected = torch.autograd.grad(head(trunk(x)).square().mean(), trunk.weight)[0]
    torch.testing.assert_close(trunk.weight.grad, expected)


@pytest.mark.parametrize("name", ["excess", "graddrop", "uniform"])
def test_scalar_form_where_nobody_holds_the_representation(name):
    torch.manual_seed(0)
    trunk, heads = nn.Linear(4, 6), [nn.Linear(6, 1), nn.Linear(6, 1)]
    gradients = []
    for scalar in (False, True):
        trunk.zero_grad()
        balancer = excessmtl.create(name, tasks=["a", "b"], shared=trunk)
        x = torch.linspace(-1, 1, 5 * 3 * 4).reshape(5, 3, 4)
        pooled = trunk(x).mean(1)
        losses = {task: head(pooled).square().mean() for task, head in zip("ab", heads, strict=True)}
        balancer(losses).backward() if scalar else balancer.backward(losses)
        gradients.append(trunk.weight.grad.clone())
    torch.testing.assert_close(gradients[0], gradients[1])
