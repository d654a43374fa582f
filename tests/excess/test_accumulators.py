"""Sums of squared gradients in fp32 and in bf16, and the excess risk that a step reports: what they promise."""

import copy

import pytest
import torch
from torch import nn

import excessmtl
from choices import PAPER
from excessmtl.excess.paper import PaperExcess
from excessmtl.methods.observation import Observation
from steps import assert_same

SHAPES = [torch.Size([3, 4]), torch.Size([5]), torch.Size([2, 3, 2]), torch.Size([])]
SIZE = 12 + 5 + 12 + 1
BF16 = PaperExcess(accumulators="bf16")
each = pytest.mark.parametrize("name", ["fp32", "bf16"])


def seen(matrix, ok=None):
    """Gradients [m, n] of the shapes above."""
    return Observation(
        losses=torch.ones(len(matrix)),
        ok=torch.ones(len(matrix), dtype=torch.bool) if ok is None else ok,
        rows=tuple(torch.split(matrix, [shape.numel() for shape in SHAPES], dim=1)),
        matrix=matrix,
        offsets=(0, 12, 17, 29),
    )


def after(rule, state, observation):
    """The state after a step."""
    decision = rule.update(state, observation)
    decision.finish()
    return decision.state


def gradients(tasks=3, size=SIZE, seed=0):
    return torch.randn(tasks, size, generator=torch.Generator().manual_seed(seed))


@each
def test_nothing_changes_before_the_step_is_finished(name):
    rule = PaperExcess(accumulators=name)
    state = rule.init(3, SHAPES)
    before = copy.deepcopy(state)
    observation = seen(gradients())
    decision = rule.update(state, observation)
    assert_same(state, before)
    decision.finish()
    assert not torch.equal(decision.state["squares"], before["squares"])
    assert name == "fp32" or decision.state["roundings"] == 1
    assert torch.equal(observation.matrix, gradients())


def test_in_bf16_small_squares_add_up():
    rounded, state = BF16, BF16.init(1, [torch.Size([200])])
    still = torch.linspace(0.5, 1.5, 200)[None]
    observation = Observation(torch.ones(1), torch.ones(1, dtype=torch.bool), rows=(still,), matrix=still)
    nearest = torch.zeros(200, dtype=torch.bfloat16)
    for _ in range(5000):
        state = after(rounded, state, observation)
        nearest += still[0].square().bfloat16()
    right = 5000 * still[0].square()
    assert nearest.float().max() < 0.2 * right.max(), "ordinary rounding would do as well; there is nothing to test"
    torch.testing.assert_close(state["squares"][0].float(), right, rtol=0.02, atol=0)


def test_in_bf16_sums_are_right_on_average():
    rounded, state = BF16, BF16.init(2, [torch.Size([4000])])
    total = torch.zeros(2, 4000)
    for seed in range(1000):
        noise = gradients(2, 4000, seed)
        total += noise.square()
        state = after(rounded, state, Observation(torch.ones(2), torch.ones(2).bool(), rows=(noise,), matrix=noise))
    error = state["squares"].float() / total - 1
    assert error.mean().abs() < 2e-3
    assert error.std() < 0.06


def test_it_takes_less_memory():
    trunk = nn.Sequential(nn.Linear(64, 64), nn.Conv2d(8, 8, 3))
    states = [PAPER.create(trunk, accumulators=form).state for form in ("fp32", "bf16")]
    full, half = (sum(tensor.nbytes for tensor in state.values()) for state in states)
    assert half < 0.51 * full


@each
def test_a_task_left_out_keeps_its_sums_bit_for_bit(name):
    accumulators, ok = PaperExcess(accumulators=name), torch.tensor([True, False, True])
    state = accumulators.init(3, SHAPES)
    for seed in range(3):
        state = after(accumulators, state, seen(gradients(seed=seed)))
    before = copy.deepcopy(state)
    state = after(accumulators, state, seen(torch.where(ok[:, None], gradients(seed=9), 0), ok))
    assert torch.equal(state["squares"][1], before["squares"][1])
    assert not torch.equal(state["squares"][0], before["squares"][0])


def test_the_excess_risk_is_the_l1_norm_of_the_gradient_and_falls_like_one_over_root_t_while_that_stays():
    torch.manual_seed(0)
    trunk, head, x = nn.Sequential(nn.Linear(5, 7), nn.Tanh()), nn.Linear(7, 1), torch.randn(9, 5)
    balancer = excessmtl.ExcessMTL(["a"], trunk, estimator="paper")
    for number in range(1, 5):
        trunk.zero_grad()
        step = balancer.backward({"a": head(trunk(x)).square().mean()})
        l1 = sum(parameter.grad.abs().sum() for parameter in trunk.parameters())
        torch.testing.assert_close(step.excess_risks[0], l1 / number**0.5, rtol=1e-5, atol=0)
