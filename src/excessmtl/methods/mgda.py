"""MGDA: the shortest vector in the convex hull of the task gradients.

Desideri 2012; Sener & Koltun, NeurIPS 2018, https://arxiv.org/abs/1810.04650:
    w = argmin over the simplex of |sum_i w_i g_i|^2 = w' M w
It favours tasks with small gradients: when the larger of two gradients projects on the smaller one by more than its
length, all weight is on the smaller. `normalize` divides the gradients by their norm ("l2"), by the loss ("loss") or by
both ("loss+") before the problem is solved; the step itself takes the raw gradients with the resulting weights.

`solver="exact"` meets the optimality conditions to rounding; "frank-wolfe" is the paper's, slow near the optimum. Other
implementations keep the two-task weights within [0.001, 0.999], and some step with the normalised gradients.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.min_norm import frank_wolfe, min_norm

_NORMALIZERS = ("none", "l2", "loss", "loss+")
_SOLVERS = {"exact": min_norm, "frank-wolfe": frank_wolfe}


@method("mgda")
@dataclass(frozen=True)
class MGDA(Probed):
    """The shortest convex combination of the task gradients."""

    heads: ClassVar[Heads] = "unweighted"

    normalize: str = "none"
    """What gradients are divided by before the weights are solved for: "none", "l2", "loss" or "loss+"."""
    solver: str = "exact"
    """The "exact" one, or "frank-wolfe" as in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize not in _NORMALIZERS:
            raise ValueError(f"normalize must be one of {list(_NORMALIZERS)}, found {self.normalize!r}")
        if self.solver not in _SOLVERS:
            raise ValueError(f"solver must be one of {list(_SOLVERS)}, found {self.solver!r}")

    def update(self, state: State, seen: Observation) -> Decision:
        """The minimum-norm weights of the (normalised) gradients."""
        gram = seen.gram
        divisor = torch.ones_like(seen.losses)
        if self.normalize in ("l2", "loss+"):
            divisor = divisor * gram.diagonal().clamp(min=0).sqrt()
        if self.normalize in ("loss", "loss+"):
            divisor = divisor * seen.losses.abs()
        divisor = torch.where(divisor > 0, divisor, 1)
        return Decision(_SOLVERS[self.solver](gram / divisor[:, None] / divisor, seen.ok), state)
