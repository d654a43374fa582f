"""MGDA-UB and Aligned-MTL-UB: the weights come from the gradients at z, the trunk takes one backward pass."""

import pytest
import torch
from observing import weights_of
from torch import nn

import excessmtl

TASKS = ["a", "b", "c"]


def gradients(losses, inputs):
    """[tasks, n] by torch alone."""
    rows = [torch.autograd.grad(loss, inputs, retain_graph=True) for loss in losses.values()]
    return torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])


@pytest.mark.parametrize("name", ["mgda", "aligned_mtl"])
def test_the_rule_is_applied_to_gradients_at_the_representation(name):
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5))
    parameters, z = list(trunk.parameters()), trunk(torch.randn(7, 4))
    losses = {task: (nn.Linear(5, 1)(z) - torch.randn(7, 1)).square().mean() for task in TASKS}
    at_z = gradients(losses, [z])
    expected = weights_of(name, at_z)
    assert not torch.allclose(expected, weights_of(name, gradients(losses, parameters)), atol=0.01), "it matters here"
    through_trunk = torch.autograd.grad(z, parameters, (expected @ at_z).view_as(z), retain_graph=True)
    passes = []
    trunk[0].weight.register_hook(passes.append)
    balancer = excessmtl.create(name, tasks=TASKS, shared=parameters, probe="representation", scale=1.0)
    step = balancer.backward(losses, at=z)
    assert len(passes) <= 1
    torch.testing.assert_close(step.weights, expected, rtol=1e-4, atol=1e-6)
    for parameter, gradient in zip(parameters, through_trunk, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
