"""He et al. 2024, Sec. 3.3: the KL-regularised maximum over the simplex is the multiplicative update."""

import pytest
import torch

from excessmtl.solvers.multiplicative import ascend


def test_it_maximises_gains_less_divergence():
    torch.manual_seed(0)
    everyone = torch.ones(4, dtype=torch.bool)
    for _ in range(5):
        scores, gains = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
        current, new = scores.softmax(0), ascend(scores, gains, everyone).softmax(0)

        def objective(a, current=current, gains=gains):
            return (a * gains).sum(-1) - (a * (a / current).log()).sum(-1)

        rivals = torch.distributions.Dirichlet(torch.ones(4, dtype=torch.float64)).sample((2000,))
        near = new * (1 + 1e-3 * torch.randn(2000, 4, dtype=torch.float64))
        near = near / near.sum(1, keepdim=True)
        assert objective(new) >= objective(rivals).max()
        assert objective(new) >= objective(near).max()
        assert objective(new).item() == pytest.approx((current * gains.exp()).sum().log().item())


def test_scores_of_absent_tasks_are_bit_identical_and_nothing_grows():
    scores, gains = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([5.0, 7.0, 1e9])
    ok = torch.tensor([True, True, False])
    assert ascend(scores, gains, ok)[2] == scores[2]
    for _ in range(100):
        scores = ascend(scores, torch.tensor([5.0, 7.0, 1.0]), torch.ones(3, dtype=torch.bool))
    assert scores.max() == 0
    assert scores.softmax(0).isfinite().all()
