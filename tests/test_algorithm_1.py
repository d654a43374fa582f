"""The excess risk that a step reports; methods/oracles/excess.py has what becomes of it."""

import torch
from torch import nn

import excessmtl


def test_the_excess_risk_is_the_l1_norm_of_the_gradient_and_falls_like_one_over_root_t_while_that_stays():
    torch.manual_seed(0)
    trunk, head, x = nn.Sequential(nn.Linear(5, 7), nn.Tanh()), nn.Linear(7, 1), torch.randn(9, 5)
    balancer = excessmtl.ExcessMTL(["a"], trunk, estimator="paper")
    for number in range(1, 5):
        trunk.zero_grad()
        step = balancer.backward({"a": head(trunk(x)).square().mean()})
        l1 = sum(parameter.grad.abs().sum() for parameter in trunk.parameters())
        torch.testing.assert_close(step.excess_risks[0], l1 / number**0.5, rtol=1e-5, atol=0)
