"""M a = 1/a, and what happens where it has no solution."""

import pytest
import torch

from excessmtl.solvers.bargaining import bargain


def everyone(gram):
    return torch.ones(len(gram), dtype=torch.bool)


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


def test_tasks_without_gradient_or_not_ok_get_nothing():
    gram = torch.diag(torch.tensor([1.0, 0.0, 4.0]))
    assert bargain(gram, everyone(gram)).tolist() == pytest.approx([1, 0, 0.5])
    assert bargain(gram, torch.tensor([True, True, False])).tolist() == pytest.approx([1, 0, 0])
    assert bargain(gram, torch.zeros(3, dtype=torch.bool)).tolist() == [0, 0, 0]
