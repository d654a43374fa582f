"""DualProj: the mean gradient, projected onto the steps that harm no task.

Lopez-Paz & Ranzato, "Gradient Episodic Memory for Continual Learning", NeurIPS 2017, https://arxiv.org/abs/1706.08840
(Eq. 11), as an aggregator of tasks. With p_i = 1/m:
    d = sum_j v_j g_j,   v = argmin v'Mv over v >= p
so no loss rises to first order, M v >= 0. Without conflicts it is the mean of the gradients. Where `upgrad` frees every
gradient of its conflicts before it averages, this one averages first: a large gradient decides more. The length of d is
the method's own, so `scale="sum"` and `"mean"` leave it.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.conditioning import normalized
from excessmtl.solvers.nonnegative import without_conflict


@method("dualproj")
@dataclass(frozen=True)
class DualProj(Probed):
    """The mean gradient, freed of conflicts."""

    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False

    def update(self, state: State, seen: Observation) -> Decision:
        """v = argmin v'Mv over v >= 1/m."""
        cosines, lengths, active = normalized(seen.gram, seen.ok)
        share = torch.where(active, lengths, 0) / seen.ok.sum().clamp(min=1)
        (weights_of_rows,) = without_conflict(cosines, share[None], active)
        idle = (seen.ok & ~active) / seen.ok.sum().clamp(min=1)  # a zero gradient, whose head still trains
        return Decision((torch.where(active, weights_of_rows / lengths, 0) + idle).to(seen.gram.dtype), state)
