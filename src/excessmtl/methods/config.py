"""ConFIG: the direction that has the same angle with every gradient, as long as all gradients say together.

Liu et al., "ConFIG: Towards Conflict-free Training of Physics Informed Neural Networks", ICLR 2025,
https://arxiv.org/abs/2408.11104 (Eq. 2). With u_i = g_i / |g_i|, U their matrix and C = U U':
    v = unit(U^+ 1) = unit(sum_i y_i u_i) with y = C^+ 1,   d = (sum_i g_i . v) v
No task is harmed where the gradients allow it. The direction is that of `imtl`; the length is the sum of the
projections of all gradients. That length is the method's own, so `scale="sum"` and `"mean"` leave it. Weights may be
negative.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.conditioning import equal_cosines, normalized


@method("config")
@dataclass(frozen=True)
class ConFIG(Probed):
    """The same angle with every gradient, as long as their projections together."""

    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False

    def update(self, state: State, seen: Observation) -> Decision:
        """w_i = (sum_j g_j . v) y_i / (|g_i| |sum_j y_j u_j|)."""
        cosines, lengths, active = normalized(seen.gram, seen.ok)
        y = torch.where(active, equal_cosines(cosines, active), 0)
        pulled = cosines @ y
        square = y @ pulled
        # Opposed gradients have no such direction: what is left of it is rounding.
        sound = square > 1e-9 * (y @ y)
        length = torch.where(active, lengths * pulled, 0).sum() / torch.where(sound, square, 1)
        weights = torch.where(sound & active, length * y / lengths, 0)
        return Decision(weights.to(seen.gram.dtype), state)
