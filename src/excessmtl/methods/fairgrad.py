"""FairGrad: the step that divides progress between the tasks by alpha-fairness.

Ban & Ji, "Fair Resource Allocation in Multi-Task Learning", ICML 2024, https://arxiv.org/abs/2402.15638: the
utility of a task is its progress g_i . d, and the step maximises sum_i (g_i . d)^(1-alpha) / (1-alpha). Then
    d = sum_i w_i g_i with w > 0 and M w = w^(-1/alpha) (elementwise)
alpha = 1 is proportional fairness, the equation of `nash` without its clipping; alpha -> 0 is the sum of the losses, a
large alpha looks at the least progress. Damped Newton steps solve the equation directly; the authors hand it to a
least-squares package. The length of the step is the method's own, so `scale="sum"` and `"mean"` leave it.
"""

from dataclasses import dataclass
from typing import ClassVar

from excessmtl.engine.observation import Observation
from excessmtl.methods.base import Decision, Probed, State, method
from excessmtl.solvers.bargaining import bargain


@method("fairgrad")
@dataclass(frozen=True)
class FairGrad(Probed):
    """Progress divided between the tasks by alpha-fairness."""

    simplex: ClassVar[bool] = False

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.2 <= self.alpha <= 10:
            raise ValueError(f"alpha must be between 0.2 and 10, found {self.alpha}")

    def update(self, state: State, seen: Observation) -> Decision:
        """w with M w = w^(-1/alpha)."""
        return Decision(bargain(seen.gram, seen.ok, 1 / self.alpha), state)
