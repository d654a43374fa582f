"""CAGrad: the step near the mean gradient that most improves the task it improves least.

Liu et al., NeurIPS 2021, https://arxiv.org/abs/2110.14048, Algorithm 1. With g_0 the mean gradient and
w = argmin over the simplex of g_w . g_0 + c |g_0| |g_w|:    d = g_0 + (c |g_0| / |g_w|) g_w
`rescale`: 0 leaves d, 1 divides it by 1 + c^2 (default), 2 by 1 + c. With c = 0 it is the mean gradient.
The length of d is the method's own, so `scale="sum"` and `"mean"` leave it. The authors' code multiplies d by m to
match a sum of losses: `scale=len(tasks)`. The default c = 0.4 is the authors' choice on NYUv2; LibMTL's default is 0.5.
"""

from dataclasses import dataclass
from typing import ClassVar

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.worst_case import worst_case


@method("cagrad")
@dataclass(frozen=True)
class CAGrad(Probed):
    """The step near the mean gradient that is best for the worst task."""

    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False

    c: float = 0.4
    """Radius of the ball around the mean gradient, in units of its length; below 1 it still minimises the mean."""
    rescale: int = 1
    """0 leaves the step as it is, 1 divides it by 1 + c^2, 2 by 1 + c."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.c < float("inf"):
            raise ValueError(f"c must be at least 0 and finite, found {self.c}")
        if self.rescale not in (0, 1, 2):
            raise ValueError(f"rescale must be 0, 1 or 2, found {self.rescale!r}")

    def update(self, state: State, seen: Observation) -> Decision:
        """The coefficients of d."""
        divisor = (1.0, 1 + self.c**2, 1 + self.c)[self.rescale]
        return Decision(worst_case(seen.gram, seen.ok, self.c) / divisor, state)
