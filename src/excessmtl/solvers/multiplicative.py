"""The multiplicative-weights step: argmax over the simplex of <a, gains> - KL(a || current)."""

import torch
from torch import Tensor


def ascend(scores: Tensor, gains: Tensor, ok: Tensor) -> Tensor:
    """One step in log space, where weights = softmax(scores); tasks that are not ok keep their score exactly.

    Scores only matter up to a constant. They are re-centred when every task took part, so that they neither
    grow without bound nor touch the state of a task that was left out.
    """
    scores = scores + torch.where(ok, gains, 0)
    return scores - torch.where(ok.all(), scores.max(), 0)
