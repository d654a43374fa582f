"""One bad task, or a loss scale too large: the others train on as if nothing had happened."""

import copy

import pytest
import torch

from choices import EXCESS, GRADNORM, METHODS, PAPER, ROBUST, UNIFORM, both_forms
from models import DEVICE, TASKS, batch, heads_on, losses_of
from steps import assert_same, gradients, started, take_step, twins

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


def missing(loss, z):
    return None


def run(balancer, model, seed, change, **how):
    """One step on a batch that depends on the seed alone; `change` makes the loss of `b` something else."""
    torch.manual_seed(seed)
    x, targets = batch()
    z = model.trunk(x)
    losses = heads_on(model, z, targets)
    return take_step(balancer, {**losses, "b": change(losses["b"], z)}, **how)


def zeros_for_none(found):
    return {name: torch.zeros(()) if g is None or not g.any() else g for name, g in found.items()}


CASES = [(method, bad, "module", False) for method in METHODS for bad in (nan_loss, one_nan_in_the_gradient)]
CASES += [(method, bad, "list", False) for method in (PAPER, UNIFORM) for bad in BAD]
CASES += [(method, bad, "module", True) for method in FEW for bad in (infinite_constant, infinite_gradient)]


@pytest.mark.parametrize(("method", "bad", "shared", "scalar"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_others_get_what_they_get_without_it(method, bad, shared, scalar):
    """Up to rounding: gradients of a head that can be bad in this way may be computed in another way."""
    (model, balancer), (other_model, other) = twins(method, shared)
    before = balancer.state_dict()
    step = run(balancer, model, 5, bad, scalar=scalar)
    run(other, other_model, 5, missing, scalar=scalar)
    assert step.skipped == ("b",)
    assert balancer.skipped.tolist() == [0, 1, 0]
    assert step.weights[1] == 0
    torch.testing.assert_close(zeros_for_none(gradients(model)), zeros_for_none(gradients(other_model)))
    torch.testing.assert_close(balancer.weights, other.weights)
    torch.testing.assert_close(balancer.state, other.state)
    for name, tensor in balancer.state.items():
        assert tensor.isfinite().all(), name
        if tensor.ndim and len(tensor) == len(TASKS) and method in EXCESS and name != "scores":
            assert torch.equal(tensor[1], before[f"memory.state_{name}"][1]), name


# ------------------------------------------------------------------ loss scaling


def fixed_scaler(scale):
    return torch.amp.GradScaler(DEVICE.type, init_scale=scale, growth_interval=10**6)


@pytest.mark.parametrize(
    ("method", "shared", "scalar"),
    [
        *((method, "module", False) for method in METHODS),
        *((method, "module", True) for method in FEW),
        *((method, "list", False) for method in (PAPER, UNIFORM)),
    ],
    ids=str,
)
def test_statistics_do_not_see_the_scale(method, scalar, shared):
    (model, balancer), (other_model, other) = twins(method, shared)
    scaler = fixed_scaler(2.0**10)
    for seed in range(3):
        torch.manual_seed(seed)
        x, targets = batch()
        model.zero_grad()
        other_model.zero_grad()
        step = take_step(balancer, losses_of(model(x), targets), scalar, scaler)
        plain = take_step(other, losses_of(other_model(x), targets), scalar)
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
    assert run(balancer, model, 4, lambda loss, z: loss + overflowing(z), scaler=scaler).skipped == ()
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
        optimiser.zero_grad()
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
    model, balancer = started(method)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=2.0, enabled=dtype is torch.float16)
    first = [p.detach().clone() for p in model.parameters()]
    for number in range(6):
        x, targets = batch()
        optimiser.zero_grad()
        with torch.autocast(DEVICE.type, dtype):
            losses = losses_of({task: output.float() for task, output in model(x).items()}, targets)
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


@both_forms
@pytest.mark.parametrize("method", [ROBUST, UNIFORM], ids=str)
def test_losses_of_different_types(method, scalar):
    (model, balancer), _ = twins(method, "module" if method is ROBUST else "list")
    losses = model.losses()
    losses = {"a": losses["a"].double(), "b": losses["b"].bfloat16(), "c": losses["c"]}
    assert take_step(balancer, losses, scalar).weights.isfinite().all()


@each_method
def test_a_nan_loss_is_reported_in_a_step_that_overflows(method):
    """The loss scale explains an infinite gradient, never a NaN loss."""
    model, balancer = started(method)
    x, targets = batch()
    z = model.trunk(x)
    losses = heads_on(model, z, targets)
    losses["a"], losses["b"] = losses["a"] + overflowing(z), losses["b"] * torch.nan
    assert balancer.backward(losses, scaler=fixed_scaler(2.0**60)).skipped == ("b",)
