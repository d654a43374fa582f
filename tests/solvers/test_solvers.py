"""Solvers: optimality conditions on every kind of matrix the methods can meet, and degenerate ones."""

from functools import partial

import pytest
import torch

from excessmtl.solvers.bargaining import bargain
from excessmtl.solvers.min_norm import frank_wolfe, min_norm
from excessmtl.solvers.worst_case import worst_case

SIZES = (1, 2, 3, 5, 10, 64)
KINDS = {
    "random": lambda g: g,
    "singular": lambda g: g[:, : max(1, len(g) // 2)],
    "rank one": lambda g: g[:, :1] * g[:1],
    "rank one, same side": lambda g: g[:, :1].abs() * g[:1],
    "badly scaled": lambda g: g * 10 ** torch.linspace(0, 4, len(g), dtype=g.dtype)[torch.randperm(len(g)), None],
    "two lengths": lambda g: g * 10 ** (4 * (torch.arange(len(g)) % 2)[:, None]),
    "alike": lambda g: g + 3,
    "copies": lambda g: g[torch.arange(len(g)) % 2],
    "opposed": lambda g: g[:1] * (1 - 2 * (torch.arange(len(g)) % 2)[:, None]),
    "summing to zero": lambda g: g - g.mean(0),
    "zero row": lambda g: g * (torch.arange(len(g)) > 0)[:, None],
    "zero": lambda g: 0 * g,
}


def everyone(gram):
    return torch.ones(len(gram), dtype=torch.bool)


def gap(gram, weights):
    """How far (M w)_j >= w.M w is from true, and the tolerance: relative, or the rounding of M."""
    products = gram @ weights
    value = weights @ products
    return value - products.min(), 1e-6 * value + 1e-12 * gram.max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_optimality_conditions(size, kind):
    for seed in range(3):
        torch.manual_seed(seed)
        gradients = KINDS[kind](torch.randn(size, size + 5, dtype=torch.float64))
        gram = gradients @ gradients.T
        weights = min_norm(gram, everyone(gram))
        assert (weights >= 0).all()
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        excess, tolerance = gap(gram, weights)
        assert excess <= tolerance


@pytest.mark.parametrize(
    ("gradients", "expected"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5]),
        ([[1.0, 0.0], [0.0, 2.0]], [0.8, 0.2]),
        ([[1.0, 0.0], [3.0, 1.0]], [1.0, 0.0]),
        ([[2.0, 0.0], [2.0, 0.0]], [0.5, 0.5]),
        ([[2.0, 0.0], [-1.0, 0.0]], [1 / 3, 2 / 3]),
        ([[0.0, 0.0], [1.0, 1.0]], [1.0, 0.0]),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]], [4 / 9, 4 / 9, 1 / 9]),
        ([[1.0, 0.0], [3.0, 1.0], [3.0, -1.0]], [1.0, 0.0, 0.0]),
    ],
)
@pytest.mark.parametrize("solver", [min_norm, frank_wolfe])
def test_by_hand(solver, gradients, expected):
    gradients = torch.tensor(gradients)
    gram = gradients @ gradients.T
    tolerance = 1e-6 if solver is min_norm else 1e-2
    torch.testing.assert_close(solver(gram, everyone(gram)), torch.tensor(expected), atol=tolerance, rtol=0)


EACH = {"shortest": min_norm, "Frank-Wolfe": frank_wolfe, "worst case": partial(worst_case, c=0.4), "bargain": bargain}


@pytest.mark.parametrize("name", EACH)
def test_tasks_that_are_not_ok_do_not_exist(name):
    torch.manual_seed(0)
    gradients, solver = torch.randn(6, 9), EACH[name]
    gram = gradients @ gradients.T
    ok = torch.tensor([True, False, True, True, False, True])
    weights = solver(gram, ok)
    assert (weights[~ok] == 0).all()
    torch.testing.assert_close(weights[ok], solver(gram[ok][:, ok], ok[ok]), atol=1e-5, rtol=1e-4)
    assert (solver(gram, torch.zeros_like(ok)) == 0).all()


# ------------------------------------------------------------------ CAGrad's problem against its dual


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


# ------------------------------------------------------------------ M a = 1/a, with and without a solution


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_the_bargaining_equation(size, shift):
    for seed in range(5):
        torch.manual_seed(seed)
        gradients = torch.randn(size, 2 * size + 2, dtype=torch.float64) + shift
        gradients = gradients * 10 ** (4 * torch.rand(size, 1, dtype=torch.float64) - 2)
        gram = gradients @ gradients.T
        a = bargain(gram, everyone(gram))
        assert (a > 0).all()
        torch.testing.assert_close(a * (gram @ a), torch.ones_like(a), atol=1e-5, rtol=0)
        assert a @ gram @ a == pytest.approx(size, rel=1e-5)


def test_gradients_that_cancel_give_large_but_finite_numbers():
    for gradients in (torch.tensor([[1.0, 0], [-1, 0]]), torch.tensor([[1.0, 0], [-2, 0], [1, 1e-4]])):
        gram = gradients @ gradients.T
        a = bargain(gram, everyone(gram))
        assert a.isfinite().all()
        assert (a > 0).all()
        assert a.max() < 1e5


def test_tasks_without_gradient_get_nothing():
    gram = torch.diag(torch.tensor([1.0, 0.0, 4.0]))
    assert bargain(gram, everyone(gram)).tolist() == pytest.approx([1, 0, 0.5])
