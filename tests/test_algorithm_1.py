"""What Algorithm 1 does in cases that can be worked out; methods/oracles/excess.py has it written down once more."""

import pytest
import torch
from torch import nn

import excessmtl


def one_problem():
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(5, 7), nn.Tanh())
    head = nn.Linear(7, 1)
    return trunk, head


def test_first_excess_risk_is_the_l1_norm_of_the_gradient():
    trunk, head = one_problem()
    balancer = excessmtl.ExcessMTL(["a"], trunk, estimator="paper")
    step = balancer.backward({"a": head(trunk(torch.randn(9, 5))).square().mean()})
    l1 = sum(parameter.grad.abs().sum() for parameter in trunk.parameters())
    torch.testing.assert_close(step.excess_risks[0], l1, rtol=1e-5, atol=0)


def test_stationary_gradients_make_the_estimate_fall_like_one_over_root_t():
    weight = torch.nn.Parameter(torch.tensor([2.0, -3.0]))
    balancer = excessmtl.ExcessMTL(["a"], [weight], estimator="paper")
    constant = torch.tensor([0.5, 1.5])
    risks = [balancer.backward({"a": (weight * constant).sum()}).excess_risks.item() for _ in range(100)]
    assert risks[99] / risks[0] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "robust", "step_size": 0.1}, "step_size is not an option of estimator='robust'"),
        ({"estimator": "robust", "normalize": "initial"}, "normalize is not an option"),
        ({"estimator": "robust", "probe": "all"}, "probe must be one of"),
        ({"estimator": "papre"}, "estimator must be one of"),
        ({"estimator": "paper", "warmup_steps": 3}, "needs normalize='initial'"),
        ({"estimator": "paper", "step_size": 0.0}, "step_size must be positive"),
        ({"decay": 1.0}, "decay must be at least 0 and below 1"),
        ({"trust": -1.0}, "trust must be at least 0"),
        ({"first_steps": 0}, "first_steps must be a whole number"),
        ({"cap": 0.5}, "cap must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    trunk, _ = one_problem()
    with pytest.raises(ValueError, match=message):
        excessmtl.ExcessMTL(["a", "b"], trunk, **options)
