"""IMTL: scaled losses (IMTL-L) and equal projections of their gradients (IMTL-G) together.

Liu et al., "Towards Impartial Multi-task Learning", ICLR 2021, https://openreview.net/forum?id=IMPnRXEWpvr.
IMTL-G is applied to the gradients of e^{s_i} l_i, that is to e^{s_i} g_i; the multiplier of l_i is the product of both.
In the paper a head gets the gradient of its scaled loss e^{s_i} l_i; here heads get that of l_i (`heads="unweighted"`)
or of the whole product (`"weighted"`). Under Adam the first is the paper's up to its epsilon. The total weight is
learned, so `scale="sum"` and `"mean"` leave it as it is.

This is what LibMTL calls `IMTL`. The ExcessMTL authors' repository has the same file, so their figures may show it;
their text describes IMTL-G alone, which is why `excessmtl reproduce` takes `imtl`. LibMTL trains s with the model's
optimiser, at its rate and weight decay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.imtl import equal_projections
from excessmtl.methods.imtl_l import scales_state, step_scales
from excessmtl.methods.observation import Observation


@method("imtl_hybrid")
@dataclass(frozen=True)
class IMTLHybrid(Probed):
    """IMTL-L's scales, then IMTL-G's equal projections."""

    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False

    step_size: float = 0.025
    """Of Adam on the learned scales."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """s = 0 for every task, and its optimiser."""
        return scales_state(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """e^{s_i} times the IMTL-G weight on the scaled gradients."""
        scales, state = step_scales(state, seen, self.step_size)
        gram: Tensor = scales[:, None] * seen.gram * scales
        return Decision(scales * equal_projections(gram, seen.ok), state)
