"""Krum: the gradient that has most others close to it.

Blanchard et al., "Machine Learning with Adversaries", NeurIPS 2017, https://arxiv.org/abs/1703.02757. For m gradients
of which f may be anything:
    score_i = sum of |g_i - g_j|^2 over the m - f - 2 gradients nearest to g_i,   d = mean of the k with least scores
Made for workers that estimate *one* gradient. Tasks have gradients of their own, so this is for groups or domains of
one task rather than for different tasks. Where there are fewer than f + 3 of them, the nearest one counts. Equal scores
share the weight.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.conditioning import precise


@method("krum")
@dataclass(frozen=True)
class Krum(Probed):
    """The gradient that has most others close to it."""

    heads: ClassVar[Heads] = "unweighted"

    bad: int = 1
    """f, how many tasks may be anything."""
    selected: int = 1
    """k, over how many gradients the mean is taken."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("bad", 0), ("selected", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number, at least {least}, found {value!r}")

    def update(self, state: State, seen: Observation) -> Decision:
        """Equal weights on the k tasks with the least scores."""
        m, gram = seen.tasks, precise(seen.gram)
        squares = gram.diagonal()
        distances = (squares[:, None] + squares - gram - gram.T).clamp(min=0)
        apart = seen.ok[:, None] & seen.ok & ~torch.eye(m, dtype=torch.bool, device=gram.device)
        nearest = torch.where(apart, distances, torch.inf).sort(1).values
        count = seen.ok.sum()
        counted = torch.arange(m, device=gram.device) < (count - self.bad - 2).clamp(min=1)
        scores = torch.where(counted & nearest.isfinite(), nearest, 0).sum(1)
        scores = torch.where(seen.ok, scores, torch.inf)
        last = scores.sort().values.gather(0, (count - 1).clamp(min=0, max=min(self.selected, m) - 1)[None])
        chosen = seen.ok & (scores <= last)
        return Decision((chosen / chosen.sum().clamp(min=1)).to(seen.gram.dtype), state)
