"""Nash-MTL: the step as the Nash bargaining solution between the tasks.

Navon et al., ICML 2022, https://arxiv.org/abs/2202.01017: find a > 0 with M a = 1/a (elementwise), d = sum_i a_i g_i.
The equation is the optimality condition of min_a a'Ma/2 - sum_i log a_i, strictly convex, which damped Newton steps
solve directly; then |d|^2 = m exactly. `max_norm` clips the length of d, as the authors do to the shared gradient; here
by shrinking the weights, so weighted heads shrink along with it. That length is the method's own, so `scale="sum"` and
`"mean"` leave the weights as they are.

Other implementations solve a sequence of convex programs with a modelling package. One catches every error of the
solver: where the solver is not installed its weights silently stay at one.
"""

from dataclasses import dataclass
from typing import ClassVar

from excessmtl.methods.base import Decision, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.bargaining import bargain, check_max_norm, shortened


@method("nash")
@dataclass(frozen=True)
class NashMTL(Probed):
    """The Nash bargaining solution between the tasks."""

    simplex: ClassVar[bool] = False

    max_norm: float | None = 1.0
    """Longest step allowed; None: no limit, |d|^2 = m."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_max_norm(self.max_norm)

    def update(self, state: State, seen: Observation) -> Decision:
        """a with M a = 1/a, shortened to `max_norm`."""
        weights = bargain(seen.gram, seen.ok)
        if self.max_norm is not None:
            weights = shortened(weights, seen.gram, self.max_norm)
        return Decision(weights, state)
