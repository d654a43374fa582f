"""The shortest vector in the hull: optimality conditions on every kind of matrix the methods can meet."""

import pytest
import torch

from excessmtl.solvers.min_norm import frank_wolfe, min_norm

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


def test_two_tasks_agree_with_the_same_problem_among_three():
    for seed in range(20):
        torch.manual_seed(seed)
        gradients = torch.randn(2, 3, dtype=torch.float64) * 10 ** (2 * torch.rand(2, 1, dtype=torch.float64))
        three = torch.cat((gradients, 100 * gradients.sum(0, keepdim=True)))
        ok = torch.tensor([True, True, False])
        torch.testing.assert_close(
            min_norm(three @ three.T, ok)[:2], min_norm(gradients @ gradients.T, ok[:2]), atol=1e-6, rtol=0
        )


@pytest.mark.parametrize("solver", [min_norm, frank_wolfe])
def test_tasks_that_are_not_ok_do_not_exist(solver):
    torch.manual_seed(0)
    gradients = torch.randn(6, 9)
    gram = gradients @ gradients.T
    ok = torch.tensor([True, False, True, True, False, True])
    weights = solver(gram, ok)
    assert (weights[~ok] == 0).all()
    torch.testing.assert_close(weights[ok], solver(gram[ok][:, ok], ok[ok]), atol=1e-5, rtol=0)
    assert (solver(gram, torch.zeros_like(ok)) == 0).all()
