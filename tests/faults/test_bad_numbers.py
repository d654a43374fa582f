"""One task with a number that nobody can use: too large, or a first gradient of zero. The others train on."""

import pytest
import torch
from torch import nn

import choices
from choices import ENGINES, EVERY_METHOD, METHODS, PAPER_Z, ROBUST, Method, each
from models import BATCH, DEVICE, TASKS, WIDTH, batch, heads_on, losses_of, mlp
from steps import gradients, started, trained

AT_REPRESENTATION = [
    Method(name, {"probe": "representation"}) for name in ("mgda", "imtl", "imtl_hybrid", "nash", "cagrad", "pcgrad")
]
ROUNDED = Method("excess", {"estimator": "paper", "accumulators": "bf16"})
EVERY_FORM = [*EVERY_METHOD, *AT_REPRESENTATION, ROUNDED]


def assert_finite(balancer, model, step):
    assert step.weights.isfinite().all()
    assert balancer.weights.isfinite().all()
    for name, tensor in balancer.state_dict().items():
        assert name == "memory._extra_state" or tensor.isfinite().all(), name
    for name, gradient in gradients(model.trunk).items():
        assert gradient is None or gradient.isfinite().all(), name


# ------------------------------------------------------------------ one finite spike


@each("method", EVERY_FORM)
def test_one_finite_spike_leaves_no_mark_and_the_others_still_train(method):
    """The loss of one task is a finite number whose square is not: for one step, or the state would be lost for ever.

    That task may be left out, as one with an infinite loss is, or weighed like any other; nothing may become NaN or
    inf, in that step or later. Weights that multiply from step to step must come back from a loss like that.
    """
    model, balancer = started(method, scale="mean")
    trained(balancer, model, 3)
    for spike in (1e30, 1.0, 1e20, 1.0, 1.0, 1.0):
        losses = model.losses()
        losses["b"] = losses["b"] * spike
        model.zero_grad()
        step = balancer.backward(losses)
        assert step.skipped == () or (spike > 1 and step.skipped == ("b",))
        assert_finite(balancer, model, step)
    weights = dict(zip(TASKS, step.weights.tolist(), strict=True))
    assert max(abs(weights["a"]), abs(weights["c"])) > 1e-3, weights


# ------------------------------------------------------------------ gradients that overflow, at z and below


@pytest.fixture(params=ENGINES)
def way(request, monkeypatch):
    """The ways for linear heads, for any heads, and the reference."""
    monkeypatch.setattr(choices, "ENGINE", ENGINES[request.param])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("dtype", "height", "slope"), [(torch.float32, 1e25, 1e15), (torch.float16, 300.0, 3000.0)], ids=str
)
@each("method", [*METHODS[:4], AT_REPRESENTATION[0]])
def test_a_gradient_that_overflows_at_the_representation_is_left_out(method, dtype, height, slope):
    """Head b has a weight that cancels out in its output and not in its gradient at z."""
    model = mlp().to(dtype)
    with torch.no_grad():
        model.trunk[0].weight.fill_(0.1)
        model.trunk[0].bias.zero_()
        model.heads["b"].weight.fill_(height)
        model.heads["b"].weight[:, WIDTH // 2 :] = -height
        model.heads["b"].bias.zero_()
    balancer = method.create(model.trunk)
    x, targets = batch()
    z = model.trunk(x.to(dtype))
    losses = heads_on(model, z, {task: target.to(dtype) for task, target in targets.items()})
    assert balancer.backward({**losses, "b": (model.heads["b"](z).float() * slope).sum()}).skipped == ("b",)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.usefixtures("way")
@each("method", [ROBUST, PAPER_Z])
def test_an_unlabelled_sample_that_is_not_finite_leaves_no_mark_on_the_state(method):
    model, balancer = started(method)
    x, targets = batch()
    x[2] = torch.nan
    labelled = torch.arange(BATCH, device=DEVICE) != 2
    z, targets = model.trunk(x)[labelled], {task: target[labelled] for task, target in targets.items()}
    balancer.backward(heads_on(model, z, targets), mask=dict.fromkeys(TASKS, labelled))
    assert balancer.weights.isfinite().all()
    assert all(value.isfinite().all() for value in balancer.state.values() if value.is_floating_point())


@pytest.mark.filterwarnings("ignore:the representation has 0 sample")
@pytest.mark.filterwarnings("ignore:every task of a step was left out")
@pytest.mark.usefixtures("way")
@each("method", [*METHODS[:4], AT_REPRESENTATION[0]])
def test_an_empty_batch_is_left_out(method):
    model, balancer = started(method)
    assert balancer.backward(model.losses(0)).skipped == tuple(TASKS)
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


class Steep(nn.Module):
    """The identity, with a derivative that a float of usual size survives and a large one does not."""

    def forward(self, x):
        return x + 1e10 * (x - x.detach())


@each("method", [*METHODS, AT_REPRESENTATION[0], ROUNDED])
def test_a_task_that_overflows_below_the_representation_is_left_out(method):
    """The others get what they would get without it, and no inf or NaN is in `.grad`.

    At z every gradient is finite; the weighted sum of them overflows on its way through the trunk.
    """
    found = []
    for missing in (False, True):
        model = mlp()
        model.trunk.append(Steep())
        balancer = method.create(model.trunk)
        torch.manual_seed(3)
        losses = model.losses()
        losses["b"] = None if missing else losses["b"] * 1e30
        found.append((balancer.backward(losses), balancer, model))
    (step, balancer, model), (_, _, other) = found
    assert_finite(balancer, model, step)
    assert step.skipped == ("b",)
    assert balancer.skipped.tolist() == [0, 1, 0]
    torch.testing.assert_close(gradients(model.trunk), gradients(other.trunk))


# ------------------------------------------------------------------ a first gradient of zero


@pytest.mark.parametrize("warmup", [0, 3])
@pytest.mark.parametrize("probe", ["all", "representation"])
def test_a_first_gradient_of_zero_is_no_unit(probe, warmup):
    """A hinge that is satisfied in the first steps, or in all of the warm-up, has no initial risk to be measured by.

    Nothing else is known of the task then: the others must keep weights that train them.
    """
    model = mlp()
    balancer = Method("excess", {"estimator": "paper"}).create(
        model.trunk, probe=probe, normalize="initial", warmup_steps=warmup, scale="mean"
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(8):
        x, targets = batch()
        outputs = model(x)
        losses = losses_of(outputs, targets)
        margin = -1e3 if number < max(warmup, 1) else 1.0
        losses["b"] = torch.relu(outputs["b"] + margin).mean()
        optimizer.zero_grad()
        step = balancer.backward(losses)
        optimizer.step()
        assert step.skipped == ()
        assert_finite(balancer, model, step)
        assert step.weights.min() > 0.1, f"step {number}: {dict(zip(TASKS, step.weights.tolist(), strict=True))}"
    assert all(parameter.isfinite().all() for parameter in model.parameters())
