"""UPGrad: every gradient is freed of its conflicts with the others, then they are averaged.

Quinton & Rey, "Jacobian Descent for Multi-Objective Optimization", 2024, https://arxiv.org/abs/2406.16232, Sec. 3. The
dual cone of the gradients is the set of steps that harm no task. With P the projection onto it:
    d = mean_i P(g_i),   P(g_i) = sum_j v_j g_j with v = argmin v'Mv over v >= e_i
So no loss rises to first order: M w >= 0. Without conflicts it is the mean of the gradients.
One interior-point method solves all m problems together; the authors take a quadratic-programming package, and add
1e-4 to the diagonal. The length of d is the method's own, so `scale="sum"` and `"mean"` leave it; `scale=len(tasks)`
makes it the sum where nothing conflicts.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.conditioning import normalized
from excessmtl.solvers.nonnegative import without_conflict


@method("upgrad")
@dataclass(frozen=True)
class UPGrad(Probed):
    """The mean of the gradients, each freed of its conflicts."""

    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False

    def update(self, state: State, seen: Observation) -> Decision:
        """w = mean_i v^i."""
        cosines, lengths, active = normalized(seen.gram, seen.ok)
        share = torch.where(active, lengths, 0) / seen.ok.sum().clamp(min=1)
        projected = without_conflict(cosines, torch.diag(share), active).sum(0)
        idle = (seen.ok & ~active) / seen.ok.sum().clamp(min=1)  # a zero gradient, whose head still trains
        return Decision((torch.where(active, projected / lengths, 0) + idle).to(seen.gram.dtype), state)
