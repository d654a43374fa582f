"""A step that fails leaves the balancer as it was, and the next one is the one that would have been taken instead."""

import copy
from contextlib import contextmanager

import pytest
import torch

import excessmtl
from choices import METHODS, Method, both_forms, each
from models import TASKS, batch, heads_on, losses_of, mlp
from steps import assert_same, gradients, started, take_step, trained, twins

PAPER = {"estimator": "paper"}
OTHERS = [Method("excess", {**PAPER, "accumulators": "bf16"}), Method("pcgrad", {"probe": "representation"})]
EACH = [*METHODS, *OTHERS]


class Refused(Exception):
    """What a user's hook raises."""


def refuse(*_):
    raise Refused


def on_a_shared_parameter(model, z):
    return model.trunk[0].weight.register_hook(refuse)


def on_a_written_gradient(model, z):
    return model.trunk[0].weight.register_post_accumulate_grad_hook(refuse)


def on_a_head(model, z):
    return model.heads["b"].weight.register_hook(refuse)


def on_the_representation(model, z):
    return z.register_hook(refuse)


def parametrized_by_place(*places):
    return pytest.mark.parametrize("place", places, ids=lambda place: place.__name__)


@contextmanager
def failing(model, z, place):
    hook = place(model, z)
    with pytest.raises(Refused):
        yield
    hook.remove()
    model.zero_grad()


def assert_goes_on_like(balancer, model, other, other_model):
    """The next steps are those of a twin that never failed."""
    for seed in (11, 12):
        found = []
        for one, network in ((balancer, model), (other, other_model)):
            torch.manual_seed(seed)
            network.zero_grad()
            step = one.backward(network.losses())
            assert step.skipped == ()
            found.append((step.weights, gradients(network), one.state_dict()))
        assert_same(*found)


@parametrized_by_place(on_a_shared_parameter, on_a_head, on_the_representation)
@each("method", EACH)
def test_a_hook_that_raises_while_gradients_are_delivered(method, place):
    (model, balancer), (other_model, other) = twins(method)
    before = copy.deepcopy(balancer.state_dict())
    x, targets = batch()
    z = model.trunk(x)
    with failing(model, z, place):
        try:
            balancer.backward(heads_on(model, z, targets))
        finally:
            assert all(parameter.grad is None for parameter in model.parameters())
    assert_same(before, balancer.state_dict())
    assert_goes_on_like(balancer, model, other, other_model)


@both_forms
@each("method", [Method("excess"), Method("excess", PAPER), Method("uniform")])
def test_a_hook_that_raises_while_gradients_are_computed(method, scalar):
    """On the output of a head: before the rule is asked."""
    (model, balancer), (other_model, other) = twins(method)
    before = copy.deepcopy(balancer.state_dict())
    x, targets = batch()
    outputs = model(x)
    outputs["b"].register_hook(refuse)
    with pytest.raises(Refused):
        take_step(balancer, losses_of(outputs, targets), scalar)
    assert_same(before, balancer.state_dict())
    assert all(gradient is None for gradient in gradients(model).values())
    assert_goes_on_like(balancer, model, other, other_model)


class RaisesBelow(torch.autograd.Function):
    """The identity, with a backward that refuses the n-th time."""

    @staticmethod
    def forward(ctx, x, countdown):
        ctx.countdown = countdown
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.countdown[0] -= 1
        if ctx.countdown[0] == 0:
            raise Refused
        return gradient, None


@each("method", [Method("excess", PAPER), OTHERS[0]])
def test_a_trunk_that_fails_at_one_of_the_tasks(method):
    """As when memory runs out half way: some tasks have been through the trunk, others not."""
    (model, balancer), (other_model, other) = twins(method, tasks_at_once=1)
    before = copy.deepcopy(balancer.state_dict())
    countdown = [2]
    hook = model.trunk[0].register_forward_hook(lambda module, args, output: RaisesBelow.apply(output, countdown))
    losses = model.losses()
    hook.remove()
    with pytest.raises(Refused):
        balancer.backward(losses)
    assert_same(before, balancer.state_dict())
    model.zero_grad()
    assert_goes_on_like(balancer, model, other, other_model)


@parametrized_by_place(on_a_shared_parameter, on_a_written_gradient, on_a_head)
@each("method", [*map(Method, ("excess", "uniform", "gradnorm", "pcgrad")), Method("excess", PAPER)])
def test_micro_batches_that_wait_are_not_lost_with_the_last_one(method, place):
    """The last micro-batch fails; once more, and the step is the one of all of them."""
    (model, balancer), (other_model, other) = twins(method)
    torch.manual_seed(8)
    (x, targets), (last_x, last_targets) = batch(), batch()
    pairs = (balancer, model), (other, other_model)
    for one, network in pairs:
        one.backward(losses_of(network(x), targets), accumulate=True)
    written = gradients(model)
    z = model.trunk(last_x)
    with failing(model, z, place):
        balancer.backward(heads_on(model, z, last_targets))
    for name, parameter in model.named_parameters():
        parameter.grad = written[name]
    steps = [one.backward(losses_of(network(last_x), last_targets)) for one, network in pairs]
    assert_same(steps[0].weights, steps[1].weights)
    assert_same(gradients(model), gradients(other_model))
    assert_same(balancer.state_dict(), other.state_dict())


def test_gradients_that_were_there_may_hold_part_of_a_failed_step():
    """They cannot be taken back, so the error says what to do."""
    model, balancer = started(Method("uniform"))
    trained(balancer, model, 1)
    x, targets = batch()
    balancer.backward(losses_of(model(x), targets))
    hook = model.trunk[0].weight.register_hook(refuse)
    with pytest.raises(Refused) as caught:
        balancer.backward(losses_of(model(x), targets))
    hook.remove()
    assert "zero the gradients" in caught.value.__notes__[0]


def test_a_failed_step_names_gradients_below_the_representation_that_are_not_shared():
    """`shared` is one layer of the trunk: the layers below it get part of the step before a hook raises."""
    model = mlp()
    first, second = torch.nn.Linear(6, 6).to(model.trunk[0].weight.device), model.trunk
    balancer = excessmtl.create("uniform", tasks=TASKS, shared=second)
    x, targets = batch()
    losses = losses_of(model(first(x)), targets)
    first.weight.register_post_accumulate_grad_hook(refuse)
    with pytest.raises(Refused) as raised:
        balancer.backward(losses)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert "zero the gradients" in raised.value.__notes__[0]
