"""Hooks of users: whichever way the gradients are computed, a hook acts as it does under autograd, and acts once."""

import pytest
import torch
from torch import nn

import choices
from choices import ENGINES, PAPER, ROBUST, UNIFORM, both_forms
from models import DEVICE, OUTPUTS, MultiTask, batch, heads_on, losses_of, mlp
from steps import check_backward, started

METHODS = [UNIFORM, ROBUST, PAPER]


@pytest.fixture(params=ENGINES, autouse=True)
def way(request, monkeypatch):
    """Every test here runs with the ways for linear heads, for any heads, and with the reference."""
    monkeypatch.setattr(choices, "ENGINE", ENGINES[request.param])
    return request.param


class Summing(nn.Module):
    """A head whose first operation does not need its input once more, so that z may be gone."""

    def __init__(self, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs))

    def forward(self, z):
        return z.sum(1, keepdim=True) * self.weight


def on_tensors(tensors):
    return [tensor.register_hook for tensor in tensors]


PLACES = {
    # From model, representation and outputs to what registers hooks; how often the tasks call them when they are
    # differentiated one by one, and how often a step does (None: that depends on the way).
    "parameters": (lambda model, z, outputs: on_tensors(model.parameters()), 2 * 3 + 6, 2 + 6),
    "z": (lambda model, z, outputs: on_tensors([z]), 3, 1),
    "z that nobody holds": (lambda model, z, outputs: on_tensors([z]), 3, None),
    "outputs": (lambda model, z, outputs: on_tensors(outputs.values()), 3, None),
    "before the node of a head": (lambda model, z, outputs: [outputs["b"].grad_fn.register_prehook], 1, None),
    "after the node of a head": (lambda model, z, outputs: [outputs["b"].grad_fn.register_hook], 1, None),
}


@both_forms
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_gradient_is_that_of_plain_autograd_with_the_hook(method, place, scalar):
    register, one_by_one, in_step = PLACES[place]
    looks_below = method is PAPER and "z" in place  # at what has passed the hook
    weights = []
    for factor in (1, 2):
        torch.manual_seed(1)
        heads = {task: Summing(outputs) for task, outputs in OUTPUTS.items()} if "nobody" in place else None
        model = MultiTask(heads=heads).to(DEVICE)
        balancer = method.create(model.trunk)
        x, targets = batch()
        z = model.trunk(x)
        outputs = {task: head(z) for task, head in model.heads.items()}
        calls = []

        def hook(gradient, *_, factor=factor, calls=calls):
            calls.append(1)
            if isinstance(gradient, tuple):
                return tuple(None if one is None else factor * one for one in gradient)
            return factor * gradient

        for register_hook in register(model, z, outputs):
            register_hook(hook)
        losses = losses_of(outputs, targets)
        if "nobody" in place:
            del z
        del outputs
        weights.append(check_backward(balancer, losses, model, model.trunk, scalar=scalar).weights)
        assert len(calls) > one_by_one
        assert in_step is None or looks_below or len(calls) == one_by_one + in_step
    if place == "parameters" or ("z" in place and not looks_below):
        torch.testing.assert_close(*weights)


def test_hooks_on_parameters_act_once_where_no_representation_is_known():
    model, calls = mlp(), []
    balancer = UNIFORM.create(list(model.trunk.parameters()))
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: calls.append(1) or 2 * gradient)
    check_backward(balancer, model.losses(), model, model.trunk)
    assert len(calls) == (2 * 3 + 6) + (2 + 6)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_hook_behind_the_gradient_of_a_leaf_acts_once(method):
    model, balancer = started(method)
    seen = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda leaf: seen.append((leaf, leaf.grad.clone())))
    balancer.backward(model.losses())
    assert {leaf for leaf, _ in seen} == set(model.parameters())
    assert [torch.equal(leaf.grad, gradient) for leaf, gradient in seen] == [True] * 8


@pytest.mark.parametrize("method", [UNIFORM, ROBUST], ids=str)
def test_a_retained_gradient_of_the_representation_is_the_one_sent_down(method):
    model, balancer = started(method)
    x, targets = batch()
    z = model.trunk(x)
    z.retain_grad()
    calls = []
    z.register_hook(calls.append)
    step = balancer.backward({task: loss + z.square().mean() for task, loss in heads_on(model, z, targets).items()})
    again = z.detach().requires_grad_()
    losses = [loss + again.square().mean() for loss in heads_on(model, again, targets).values()]
    (wanted,) = torch.autograd.grad(losses, again, list(step.weights))
    torch.testing.assert_close(z.grad, wanted)
    assert len(calls) == 1


def test_hooks_are_still_there_after_an_error():
    def refuse(gradient):
        raise KeyError

    model, balancer = started(UNIFORM)
    x, targets = batch()
    z = model.trunk(x)
    output = model.heads["b"](z)
    for tensor in (z, model.heads["a"].weight):
        tensor.register_hook(torch.neg)
    output.register_hook(refuse)
    with pytest.raises(KeyError):
        balancer.backward({**heads_on(model, z, targets), "b": output.mean()})
    assert [*z._backward_hooks.values()] == [*model.heads["a"].weight._backward_hooks.values()] == [torch.neg]
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
@pytest.mark.parametrize(("place", "steps"), [("leaf", range(5)), ("leaf", range(3, 5)), ("head", [3, 4])])
def test_hooks_on_nodes_act_in_the_steps_they_are_there_for(place, steps, register):
    """The node of a leaf, and its hooks, live as long as somebody holds it; the graph above is new in every step."""
    model, balancer = started(UNIFORM)
    leaf = torch.autograd.graph.get_gradient_edge(model.heads["a"].bias).node
    taken, seen = [], []
    for step in range(6 if place == "head" else 5):
        x, targets = batch()
        outputs = model(x)
        if step == steps[0] or (place == "head" and step in steps):
            node = outputs["b"].grad_fn if place == "head" else leaf
            getattr(node, register)(lambda *gradients: seen.append(len(taken)))
        taken.append(balancer.backward(losses_of(outputs, targets)))
    assert seen == list(steps)
