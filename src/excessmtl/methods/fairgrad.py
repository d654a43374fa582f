"""FairGrad: the step that divides progress between the tasks by alpha-fairness.

Ban & Ji, "Fair Resource Allocation in Multi-Task Learning", ICML 2024, https://arxiv.org/abs/2402.15638: the
utility of a task is its progress g_i . d, and the step maximises sum_i (g_i . d)^(1-alpha) / (1-alpha). Then
    d = sum_i w_i g_i with w > 0 and M w = w^(-1/alpha) (elementwise)
alpha = 1 is proportional fairness, the equation of `nash` without its clipping; alpha -> 0 is the sum of the losses, a
large alpha looks at the least progress. Damped Newton steps solve the equation directly; the authors hand it to a
least-squares package. As in their code, heads are unweighted, and d is multiplied by m and then shortened to length 1
(`max_norm`); for alpha = 1, where |d|^2 = m, the step always has length 1. `max_norm=None` leaves d as in the paper's
Algorithm 1; together with `heads="weighted"` it is LibMTL's. The length of the step is the method's own, so
`scale="sum"` and `"mean"` leave it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.bargaining import bargain, check_max_norm, shortened


@method("fairgrad")
@dataclass(frozen=True)
class FairGrad(Probed):
    """Progress divided between the tasks by alpha-fairness."""

    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False
    added: ClassVar[Mapping[str, None]] = {"max_norm": None}

    alpha: float = 1.0
    """Kind of fairness: near 0 the sum of the losses, 1 proportional, large the least progress."""
    max_norm: float | None = 1.0
    """Longest step allowed, m d if that is shorter; None: d, whatever its length."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.2 <= self.alpha <= 10:
            raise ValueError(f"alpha must be between 0.2 and 10, found {self.alpha}")
        check_max_norm(self.max_norm)

    def update(self, state: State, seen: Observation) -> Decision:
        """w with M w = w^(-1/alpha), times m and shortened to `max_norm`."""
        weights = bargain(seen.gram, seen.ok, 1 / self.alpha)
        if self.max_norm is not None:
            weights = shortened(weights * seen.ok.sum(), seen.gram, self.max_norm)
        return Decision(weights, state)
