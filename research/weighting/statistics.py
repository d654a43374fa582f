"""What a weighting rule may look at: running statistics of every task, for all runs at once ([runs, tasks] each).

The numbers of `excessmtl.excess`, batched. The vocabulary of the candidates' formulas:

    E   half the gradient's signal over its noise, 1/2 sum_k U_k / F_k, averaged, plus its own standard error
    E0  the same without the standard error: near zero as soon as the pairs of samples disagree
    T   as E with one ratio for the whole gradient: 1/2 (sum_k U_k) / (sum_k F_k)
    F   root of the summed per-sample Fisher: the length of one sample's gradient
    n   length of the mini-batch's gradient, averaged over about ten steps;  n0: over the first steps
    g   n / r0, no less than a hundredth of the largest of the run; g30, g10, g3: a thirtieth, a tenth, a third
    A   root mean square of the mini-batch gradient's length over all steps so far
    r   loss, averaged over about a hundred steps;  r_fast: over about ten;  r0: over the first steps
    i   the part of r that pairs of samples do not agree on: r minus the excess risk that the library reports
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from excessmtl.excess.excess_risk import reducible_share

_SLOW, _FAST = 0.99, 0.9
_FIRST_STEPS = 20
_DAMPING = 1e-3
_CAP = 100.0
"""How many times smaller than the largest of its run a gradient length may count as."""
CAPS = {"g": 100.0, "g30": 30.0, "g10": 10.0, "g3": 3.0}
"""The same for lengths in units of the first loss."""


@dataclass(frozen=True)
class Seen:
    """What one step shows."""

    losses: Tensor
    """[runs, tasks]."""
    signal: Tensor
    """U [runs, tasks, rows, columns]: mean products of two different samples' adapter gradients."""
    fisher: Tensor
    """F, of the same shape: mean squares of one sample's."""
    norms: Tensor
    """Lengths of the mini-batch's adapter gradients."""
    gram: Tensor
    """[runs, tasks, tasks]: products of the tasks' gradients at the representation."""


def look(losses: Tensor, projected: Tensor, pulls: Tensor, projected_pulls: Tensor) -> Seen:
    """The statistics of one step.

    Args:
        losses: means over the batch.
        projected: the representation, projected to the adapter's width, [runs, samples, width].
        pulls: gradients of the mean losses by the representation, [runs, tasks, samples, features].
        projected_pulls: the same, projected.
    """
    count = projected.shape[1]
    ones = torch.ones_like(projected[..., :1])
    rows, columns = torch.cat([projected, ones], -1), projected_pulls * count
    first = torch.einsum("rbi,rmbj->rmij", rows, columns)
    second = torch.einsum("rbi,rmbj->rmij", rows**2, columns**2)
    return Seen(
        losses=losses,
        signal=(first**2 - second) / (count * (count - 1)),
        fisher=second / count,
        norms=first.flatten(2).norm(dim=2) / count,
        gram=torch.einsum("rmbp,rkbp->rmk", pulls, pulls),
    )


class _Average:
    """An exponential average that starts at zero and is corrected for it."""

    def __init__(self, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.total: Tensor | None = None

    def __call__(self, value: Tensor) -> Tensor:
        self.steps += 1
        old = torch.zeros_like(value) if self.total is None else self.total
        self.total = self.decay * old + (1 - self.decay) * value
        return self.total / (1 - self.decay**self.steps)

    @property
    def effective_steps(self) -> float:
        """How many equally weighted steps would have an average as uncertain."""
        forgotten = self.decay**self.steps
        return (1 + self.decay) / (1 - self.decay) * (1 - forgotten) / (1 + forgotten)


class _Score:
    """A running mean of a score, with and without its standard error."""

    def __init__(self) -> None:
        self.mean, self.square = _Average(_SLOW), _Average(_SLOW)

    def __call__(self, score: Tensor) -> tuple[Tensor, Tensor]:
        mean, square = self.mean(score).clamp(min=0), self.square(score * score)
        error = (square / self.mean.effective_steps).sqrt()
        return mean.clamp(min=1e-6), (mean + error).clamp(min=1e-6)


class Statistics:
    """The running statistics by their symbols."""

    def __init__(self) -> None:
        self._fisher, self._norm = _Average(_SLOW), _Average(_FAST)
        self._loss, self._fast_loss = _Average(_SLOW), _Average(_FAST)
        self._sum, self._trace = _Score(), _Score()
        self._row_signal = _Average(_SLOW)
        self._steps = 0
        self._squared_norms: Tensor | float = 0.0
        self._first_losses: Tensor | float = 0.0
        self._first_norms: Tensor | float = 0.0

    def update(self, seen: Seen) -> dict[str, Tensor]:
        """Take a step in; all statistics as they stand after it."""
        self._steps += 1
        fisher = self._fisher(seen.fisher)
        floor = _DAMPING * fisher.mean((2, 3), keepdim=True)
        plain, floored = self._sum(0.5 * (seen.signal / (fisher + floor).clamp(min=1e-30)).sum((2, 3)))
        _, trace = self._trace(0.5 * seen.signal.sum((2, 3)) / fisher.sum((2, 3)).clamp(min=1e-30))
        share = reducible_share(
            self._row_signal(seen.signal.sum(3)).flatten(0, 1), fisher.sum(3).flatten(0, 1), _DAMPING
        )
        norm, loss = self._norm(seen.norms), self._loss(seen.losses).clamp(min=1e-6)
        self._squared_norms = self._squared_norms + seen.norms**2
        if self._steps <= _FIRST_STEPS:
            self._first_losses = self._first_losses + seen.losses
            self._first_norms = self._first_norms + seen.norms
        first = min(self._steps, _FIRST_STEPS)
        lengths = norm / torch.as_tensor(self._first_losses / first).clamp(min=1e-6)
        return {
            **{symbol: torch.maximum(lengths, lengths.amax(1, keepdim=True) / cap) for symbol, cap in CAPS.items()},
            "E": floored,
            "E0": plain,
            "T": trace,
            "n": torch.maximum(norm, norm.amax(1, keepdim=True) / _CAP),
            "r": loss,
            "i": loss * (1 - share.view_as(loss)),
            "r_fast": self._fast_loss(seen.losses).clamp(min=1e-6),
            "r0": torch.as_tensor(self._first_losses / first),
            "n0": torch.as_tensor(self._first_norms / first),
            "A": torch.as_tensor(self._squared_norms / self._steps).sqrt(),
            "F": fisher.sum((2, 3)).sqrt(),
        }
