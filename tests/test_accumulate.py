"""Micro-batches, steps between estimates, and batches in which not everything has a label."""

import pytest
import torch
from torch.nn.functional import mse_loss

from choices import EXCESS, GRADNORM, HOLDING, METHODS, PAPER, PAPER_Z, ROBUST, UNIFORM, Method, both_forms
from models import BATCH, DEVICE, TASKS, batch, heads_on, losses_of
from steps import assert_same, gradients, started, take_step, trained, twins

each_method = pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM, GRADNORM], ids=str)


def in_micro_batches(balancer, model, x, targets, scalar=False):
    """The steps of four micro-batches."""
    steps = []
    for part in range(4):
        rows = slice(part * len(x) // 4, (part + 1) * len(x) // 4)
        losses = losses_of(model(x[rows]), {task: target[rows] for task, target in targets.items()})
        losses = {task: loss / 4 for task, loss in losses.items()}
        steps.append(take_step(balancer, losses, scalar, accumulate=part < 3))
    return steps


@pytest.mark.parametrize("method", HOLDING, ids=str)
def test_parameter_probing_methods_see_one_big_batch(method):
    (model, balancer), (other_model, other) = twins(method)
    for _ in range(2):
        x, targets = batch(16)
        model.zero_grad()
        other_model.zero_grad()
        steps = in_micro_batches(balancer, model, x, targets)
        big = other.backward(losses_of(other_model(x), targets))
        torch.testing.assert_close(steps[-1].weights, big.weights, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradients(model), gradients(other_model), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(balancer.state, other.state, rtol=1e-4, atol=1e-5)
    assert balancer.steps == other.steps == 5


@both_forms
@pytest.mark.parametrize("method", [ROBUST, PAPER_Z, GRADNORM], ids=str)
def test_statistics_at_the_representation_are_those_of_the_big_batch(method, scalar):
    (model, balancer), (other_model, other) = twins(method)
    x, targets = batch(16)
    before = balancer.weights.clone()
    steps = in_micro_batches(balancer, model, x, targets, scalar)
    other.backward(losses_of(other_model(x), targets))
    torch.testing.assert_close(balancer.state, other.state, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(balancer.weights, other.weights, rtol=1e-4, atol=1e-6)
    for step in steps:
        torch.testing.assert_close(step.weights, before * balancer.factor)


@both_forms
@each_method
def test_the_losses_of_the_last_micro_batch_are_those_of_the_step(method, scalar):
    model, balancer = started(method, every=2)
    for _ in range(3):
        x, targets = batch(16)
        whole = losses_of(model(x), targets)
        steps = in_micro_batches(balancer, model, x, targets, scalar)
        torch.testing.assert_close(steps[-1].losses, torch.stack([whole[task].detach() for task in TASKS]))
        assert (steps[0].losses < steps[-1].losses).all()
    whole = losses_of(model(x), targets)
    plain = balancer.backward(whole)  # a step in one piece has its own losses alone
    torch.testing.assert_close(plain.losses, torch.stack([whole[task].detach() for task in TASKS]))


def test_losses_of_micro_batches_with_labels_here_and_there():
    model, balancer = started(UNIFORM)
    x, targets = batch()

    def part(**factors):
        losses = losses_of(model(x), targets)
        return {task: factor * losses[task] for task, factor in factors.items()}

    (_, b, _) = (loss.detach() for loss in losses_of(model(x), targets).values())
    balancer.backward(part(a=torch.nan, b=0.5), accumulate=True)
    last = balancer.backward(part(a=0.5))
    assert last.losses[0] == last.losses[0].nan_to_num()  # what is known of a
    torch.testing.assert_close(last.losses[1], 0.5 * b)
    assert last.losses[2].isnan()


def test_a_task_with_labels_in_the_first_micro_batch_alone_takes_part():
    model, balancer = started(Method("groupdro", {"step_size": 1.0}))
    x, targets = batch()
    losses = losses_of(model(x), targets)
    wanted = torch.stack([losses["a"] + losses["a"], losses["b"], losses["c"]]).detach().softmax(0)
    balancer.backward({"a": losses["a"], "b": losses["b"]}, accumulate=True)
    losses = losses_of(model(x), targets)
    balancer.backward({"a": losses["a"], "c": losses["c"]})
    torch.testing.assert_close(balancer.weights, wanted)


def test_a_discarded_micro_batch_is_in_no_loss():
    model, balancer = started(UNIFORM)
    x, targets = batch()
    balancer.backward(losses_of(model(x), targets), accumulate=True)
    assert balancer.accumulating
    balancer.discard()
    found = balancer.backward(losses_of(model(x), targets)).losses
    torch.testing.assert_close(found, torch.stack([*losses_of(model(x), targets).values()]).detach())
    balancer.backward(losses_of(model(x), targets), accumulate=True)
    balancer.load_state_dict(UNIFORM.create(model.trunk).state_dict())
    torch.testing.assert_close(balancer.backward(losses_of(model(x), targets)).losses, found)


@pytest.mark.parametrize(("method", "steps"), [(ROBUST, 3), (Method("graddrop"), 12)], ids=str)
def test_steps_are_counted_once_unless_every_micro_batch_is_decided_by_itself(method, steps):
    model, balancer = started(method)
    x, targets = batch(16)
    for _ in range(3):
        in_micro_batches(balancer, model, x, targets)
    assert balancer.steps == steps


@each_method
def test_every(method):
    model, balancer = started(method, every=3)
    old = balancer.weights.clone()
    state = {name: tensor.clone() for name, tensor in balancer.state.items()}
    for number in range(7):
        (step,) = trained(balancer, model, 1, seed=number)
        if number % 3:
            assert torch.equal(balancer.weights, old)
            assert_same(state, balancer.state)
            torch.testing.assert_close(step.weights, old * balancer.factor)
            assert step.excess_risks.isnan().all()
        elif method in EXCESS:
            assert step.excess_risks.isfinite().all()
            assert not torch.equal(balancer.weights, old)
        old = balancer.weights.clone()
        state = {name: tensor.clone() for name, tensor in balancer.state.items()}


# ------------------------------------------------------------------ labels


@each_method
def test_a_mask_that_lets_all_through_is_no_mask(method):
    (model, balancer), (other_model, other) = twins(method)
    x, targets = batch()
    mask = {task: torch.ones(BATCH, dtype=torch.bool, device=DEVICE) for task in TASKS}
    one = balancer.backward(losses_of(model(x), targets), mask=mask)
    assert_same(one.weights, other.backward(losses_of(other_model(x), targets), mask={"a": None}).weights)
    assert_same(balancer.state_dict(), other.state_dict())
    assert_same(gradients(model), gradients(other_model))


@pytest.mark.parametrize("method", [ROBUST, PAPER_Z], ids=str)
def test_partly_labelled_is_the_labelled_part_alone(method):
    (model, balancer), (other_model, other) = twins(method)
    x, targets = batch(12)
    chosen = torch.arange(12, device=DEVICE) % 3 > 0
    z = model.trunk(x)
    losses = heads_on(model, z, targets)
    losses["b"] = mse_loss(model.heads["b"](z)[chosen], targets["b"][chosen])
    one = balancer.backward(losses, mask={"b": chosen})
    losses = losses_of(other_model(x), targets)
    losses["b"] = mse_loss(other_model.heads["b"](other_model.trunk(x[chosen])), targets["b"][chosen])
    two = other.backward(losses)
    torch.testing.assert_close(one.weights, two.weights)
    torch.testing.assert_close(one.excess_risks, two.excess_risks)
    for name in balancer.state:
        torch.testing.assert_close(balancer.state[name], other.state[name])
    torch.testing.assert_close(gradients(model), gradients(other_model))


@pytest.mark.parametrize("factor", [torch.nan, 1.0])
@pytest.mark.parametrize(
    ("method", "shared"), [*((method, "module") for method in METHODS), (PAPER, "list"), (UNIFORM, "list")], ids=str
)
def test_a_mask_that_lets_nothing_through_is_a_missing_task(method, shared, factor):
    (model, balancer), (other_model, other) = twins(method, shared)
    x, targets = batch()
    nobody = torch.zeros(BATCH, dtype=torch.bool, device=DEVICE)
    losses = losses_of(model(x), targets)
    one = balancer.backward({**losses, "b": losses["b"] * factor}, mask={"b": nobody})
    losses = losses_of(other_model(x), targets)
    two = other.backward({"a": losses["a"], "c": losses["c"]})
    assert one.skipped == ()
    torch.testing.assert_close(one.weights, two.weights)
    torch.testing.assert_close(balancer.state, other.state)
    if not balancer.rule.gated:
        for p, q in zip(model.trunk.parameters(), other_model.trunk.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    assert all(p.grad is None or not p.grad.any() for p in model.heads["b"].parameters())
