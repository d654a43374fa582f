"""Trimmed mean: for every shared parameter, the mean of the tasks' gradients without the largest and the smallest.

Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, https://arxiv.org/abs/1803.01498 (Definition 2). Made
for workers that estimate *one* gradient. Tasks have gradients of their own, so this is for groups or domains of one
task rather than for different tasks. `trim` values are left out on either side, fewer where there are not that many
tasks: two tasks have the plain mean. `step.weights` show the share of a task in the mean, over all parameters. Heads
are trained with their own gradient. `protect` and `every` are refused.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Heads, Rule, State, method
from excessmtl.methods.observation import Observation


@method("trimmed_mean")
@dataclass(frozen=True)
class TrimmedMean(Rule):
    """The mean gradient without the largest and smallest entries."""

    probe: ClassVar[Probe] = Probe.SHARED
    heads: ClassVar[Heads] = "unweighted"
    directs: ClassVar[bool] = True

    trim: int = 1
    """How many values are left out on either side."""

    def __post_init__(self) -> None:
        if not isinstance(self.trim, int) or self.trim < 0:
            raise ValueError(f"trim must be a whole number, at least 0, found {self.trim!r}")

    def update(self, state: State, seen: Observation) -> Decision:
        """The mean of the entries in the middle."""
        assert seen.matrix is not None
        values = torch.where(seen.ok[:, None], seen.matrix, torch.inf)
        ordered = values.sort(0).values
        count = seen.ok.sum()
        trim = ((count - 1) // 2).clamp(min=0, max=self.trim)
        ranks = torch.arange(seen.tasks, device=count.device)
        middle = (ranks >= trim) & (ranks < count - trim)
        total = torch.where(middle[:, None], ordered, 0).sum(0)
        least, most = (ordered.index_select(0, rank[None]) for rank in (trim, (count - 1 - trim).clamp(min=0)))
        kept = (values >= least) & (values <= most) & seen.ok[:, None]  # equal values share their place
        share = kept / kept.sum(0).clamp(min=1)
        return Decision(share.mean(1), state, direction=total / (count - 2 * trim).clamp(min=1))
