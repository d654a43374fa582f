"""IMTL-G: a direction whose projection on every task's gradient is the same.

Liu et al., "Towards Impartial Multi-task Learning", ICLR 2021, https://openreview.net/forum?id=IMPnRXEWpvr (Eq. 4-6).
Find w with sum w = 1 such that d = sum_i w_i g_i has equal projections on all u_i = g_i / |g_i|. In terms of the Gram
matrix: M w is proportional to the norms, so w is proportional to M^+ |g|. Weights may be negative, as in the paper.

The paper takes gradients at the shared feature (`probe="representation"`); the default here is the shared parameters.
LibMTL's `IMTL`, the file that the ExcessMTL authors' repository has too, is not this method but `imtl_hybrid`. The text
of the ExcessMTL paper describes IMTL by its equal projections alone, so `excessmtl reproduce` takes this method for it.
Other implementations divide by zero when gradients are parallel or vanish.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.conditioning import equal_cosines, normalized


@method("imtl")
@dataclass(frozen=True)
class IMTL(Probed):
    """Equal projections of the step on every task's gradient (IMTL-G)."""

    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False

    def total(self, tasks: int) -> float:
        """One, though some weights may be negative."""
        return 1.0

    def update(self, state: State, seen: Observation) -> Decision:
        """w = M^+ |g| / sum."""
        return Decision(equal_projections(seen.gram, seen.ok), state)


def equal_projections(gram: Tensor, ok: Tensor) -> Tensor:
    """Solved for x_i = w_i |g_i|: C x = 1. A task with a zero gradient gets the mean weight of the others.

    Where the weights cancel to nothing (opposed gradients) equal ones are used.
    """
    cosines, lengths, active = normalized(gram, ok)
    raw = torch.where(active, equal_cosines(cosines, active) / lengths, 0)
    total = raw.sum()
    sound = raw.isfinite().all() & (total.abs() > 1e-4 * raw.abs().sum())
    weights = torch.where(sound, raw / torch.where(sound, total, 1), active / active.sum().clamp(min=1))
    idle = ok & ~active  # a zero gradient: any weight will do, so the mean one
    weights = torch.where(idle, 1 / active.sum().clamp(min=1), weights)
    return (weights / torch.where(ok.any(), weights.sum(), 1)).to(gram.dtype)
