"""Steps of a balancer, the gradient that one must leave behind by plain autograd, and what is compared afterwards."""

import copy
import json

import pytest
import torch
from torch import nn

from models import batch, losses_of, mlp


def started(method, **options):
    """A model and its balancer."""
    model = mlp()
    return model, method.create(model.trunk, **options)


def trained(balancer, model, steps, seed=2, learning_rate=0.05, **arguments):
    """Plain training; the steps it took."""
    torch.manual_seed(seed)
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate)
    history = []
    for _ in range(steps):
        x, targets = batch()
        optimiser.zero_grad()
        history.append(balancer.backward(losses_of(model(x), targets), **arguments))
        optimiser.step()
    return history


def twins(method, shared="module", **options):
    """Two equal models with balancers, three steps into training."""
    model = mlp()
    balancer = method.create(model.trunk if shared == "module" else list(model.trunk.parameters()), **options)
    trained(balancer, model, 3)
    model.zero_grad()
    return (model, balancer), copy.deepcopy((model, balancer))


def take_step(balancer, losses, scalar=False, scaler=None, **arguments):
    """One step in either form."""
    if not scalar:
        return balancer.backward(losses, scaler=scaler, **arguments)
    value = balancer(losses, scaler=scaler, **arguments)
    (value if scaler is None else scaler.scale(value)).backward()
    return balancer.last_step


def host_state(state):
    """What a saved state says beside its buffers."""
    return json.loads(bytes(state["memory._extra_state"].tolist()))


def with_host_state(state, told):
    """The same state, saying this instead."""
    return {**state, "memory._extra_state": torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)}


def gradients(module):
    return {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


def plain_gradients(losses, parameters):
    """Task -> gradient of its loss at each parameter (None where it does not reach), by autograd alone."""
    found = {}
    for task, loss in losses.items():
        if loss is not None:
            found[task] = torch.autograd.grad(loss, parameters, torch.ones_like(loss), True, allow_unused=True)
    return found


def expected_gradients(balancer, step, plain, parameters, shared, heads=None, weights=None):
    """The weights (of the step) on what is shared or reached by several tasks, the head policy on the rest."""
    shared_ids = {id(parameter) for parameter in shared}
    weights = dict(zip(step.tasks, (step.weights if weights is None else weights).tolist(), strict=True))
    unweighted = (heads or balancer.heads) == "unweighted"
    skipped = step.skipped
    expected = []
    for j, parameter in enumerate(parameters):
        if balancer.rule.directs and id(parameter) in shared_ids:
            # No weighted sum: tests/methods/test_oracles.py has what it is.
            assert parameter.grad is None or parameter.grad.to_dense().isfinite().all()
            expected.append(None if parameter.grad is None else parameter.grad.to_dense().double())
            continue
        reached = {task: found[j] for task, found in plain.items() if found[j] is not None}
        own = id(parameter) not in shared_ids and len(reached) == 1
        terms = []
        for task, gradient in reached.items():
            multiplier = 1.0 if own and unweighted else weights[task]
            if task not in skipped:
                terms.append(multiplier * gradient.to_dense().double())
        expected.append(sum(terms) if terms else None)
    return expected


def assert_gradients(parameters, expected, rtol=1e-4, names=None):
    atol = rtol * max((float(wanted.to_dense().abs().max()) for wanted in expected if wanted is not None), default=1.0)
    for j, (parameter, wanted) in enumerate(zip(parameters, expected, strict=True)):
        found = parameter.grad
        where = f"parameter {names[j] if names else j} of shape {tuple(parameter.shape)}"
        if wanted is None:
            assert found is None or not found.to_dense().abs().any(), f"{where}: a gradient where there is none"
            continue
        assert found is not None, f"{where}: no gradient"
        assert found.dtype == parameter.dtype
        assert torch.allclose(found.to_dense().double(), wanted.to_dense(), rtol, atol), (
            f"{where}: {found} where plain autograd has {wanted}"
        )


def check_backward(balancer, losses, model, shared, *, scalar=False, rtol=1e-4, **arguments):
    """One step must add what plain autograd says to `.grad`; both pass the graph of one forward."""
    named = dict(model.named_parameters())
    parameters = [p for p in named.values() if p.requires_grad]
    names = [name for name, p in named.items() if p.requires_grad]
    shared = [p for p in (shared.parameters() if isinstance(shared, nn.Module) else shared) if p.requires_grad]
    plain = plain_gradients(losses, parameters)
    for parameter in named.values():
        parameter.grad = None
    step, heads = take_step(balancer, losses, scalar, **arguments), "weighted" if scalar else None
    assert step.skipped == ()
    assert step.weights.isfinite().all()
    if not balancer.rule.gated:
        assert_gradients(parameters, expected_gradients(balancer, step, plain, parameters, shared, heads), rtol, names)
    for parameter in named.values():
        if not parameter.requires_grad:
            assert parameter.grad is None
    return step


def snapshot(module, balancer):
    """Everything an error must leave alone."""
    return {
        "grad": gradients(module),
        "state": {key: value.clone() for key, value in balancer.state_dict().items()},
        "buffers": {name: buffer.clone() for name, buffer in module.named_buffers()},
        "random": torch.get_rng_state(),
    }


def refused(balancer, model, losses, match=None, form="backward", **arguments):
    """The error that a step raises, after which everything is as it was."""
    before = snapshot(model, balancer)
    with pytest.raises(ValueError, match=match) as caught:
        getattr(balancer, form)(losses, **arguments)
    assert_same(before, snapshot(model, balancer))
    return str(caught.value)


def assert_same(one, other):
    """Bit for bit: tensors, numbers and None, nested in any way."""
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
