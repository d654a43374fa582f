"""CAGrad's problem against its other side: no step in the ball does better for the worst task."""

import pytest
import torch

from excessmtl.solvers.worst_case import worst_case


def everyone(gram):
    return torch.ones(len(gram), dtype=torch.bool)


def duality_gap(gram, coefficients, c):
    """Bound g_w.g_0 + c |g_0| |g_w| less the worst improvement min_i g_i.d that the coefficients reach."""
    m = len(gram)
    mean = torch.full((m,), 1 / m, dtype=gram.dtype)
    added = coefficients - mean
    weights = added / added.sum()
    radius = c * (mean @ gram @ mean).sqrt()
    bound = weights @ gram @ mean + radius * (weights @ gram @ weights).clamp(min=0).sqrt()
    return bound - (gram @ coefficients).min(), radius, (added @ gram @ added).clamp(min=0).sqrt()


@pytest.mark.parametrize("c", [0.2, 0.4, 0.8])
@pytest.mark.parametrize("size", [2, 3, 8, 30])
def test_no_duality_gap_and_on_the_ball(size, c):
    for seed in range(5):
        torch.manual_seed(seed)
        gradients = torch.randn(size, 2 * size, dtype=torch.float64) + 0.1 * torch.randn(1, 2 * size)
        gradients = gradients * 10 ** (2 * torch.rand(size, 1, dtype=torch.float64) - 1)
        gram = gradients @ gradients.T
        gap, radius, distance = duality_gap(gram, worst_case(gram, everyone(gram), c), c)
        scale = radius * gram.diagonal().min().sqrt()
        assert -1e-6 * scale <= gap <= 1e-4 * scale
        assert distance == pytest.approx(radius.item(), rel=1e-4)


def test_with_no_radius_it_is_the_mean():
    gram = torch.tensor([[2.0, -1.0, 0.5], [-1.0, 3.0, 0.2], [0.5, 0.2, 1.0]])
    assert worst_case(gram, everyone(gram), 0.0).tolist() == pytest.approx([1 / 3] * 3)


def test_degenerate_problems_stay_finite_and_in_the_ball():
    opposed = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    cancelling = torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    for gram in (opposed, cancelling, torch.zeros(3, 3), torch.ones(4, 4), torch.diag(torch.tensor([0.0, 1, 2]))):
        coefficients = worst_case(gram, everyone(gram), 0.4)
        assert coefficients.isfinite().all()
        mean = torch.full((len(gram),), 1 / len(gram))
        added = coefficients - mean
        assert added @ gram @ added <= 0.16 * mean @ gram @ mean + 1e-4
    assert (worst_case(opposed, torch.zeros(2, dtype=torch.bool), 0.4) == 0).all()


def test_tasks_that_are_not_ok_do_not_exist():
    torch.manual_seed(0)
    gradients = torch.randn(5, 9)
    gram, ok = gradients @ gradients.T, torch.tensor([True, False, True, True, False])
    found = worst_case(gram, ok, 0.4)
    assert (found[~ok] == 0).all()
    torch.testing.assert_close(found[ok], worst_case(gram[ok][:, ok], ok[ok], 0.4), atol=1e-5, rtol=1e-4)
