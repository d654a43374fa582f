"""Dynamic task prioritization: more weight on tasks whose indicator of success is still low.

Guo et al., ECCV 2018, https://openaccess.thecvf.com/content_ECCV_2018/html/Michelle_Guo_Focus_on_the_ECCV_2018_paper.html.
    k_i <- a kappa_i + (1 - a) k_i,    w_i = -(1 - k_i)^{gamma_i} log k_i
kappa_i in (0, 1] is a performance indicator such as accuracy: `backward(..., metrics={task: value})`. Where none
has ever been given, exp(-loss) stands in for it (the probability of the label, for cross-entropy). The total
weight falls as tasks succeed, so `scale="sum"` and `"mean"` leave it as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, constant, method, per_task
from excessmtl.methods.observation import Observation

_SMALLEST = 1e-3


@method("dtp")
@dataclass(frozen=True)
class DTP(Rule):
    """More weight on tasks that perform badly, by an indicator in (0, 1]."""

    simplex: ClassVar[bool] = False
    uses: ClassVar[frozenset[str]] = frozenset({"metrics"})

    rate: float = 0.1
    """a, the share of the newest indicator in its average."""
    gamma: float | Mapping[str, float] | Sequence[float] = 1.0
    """Focusing parameter, for all tasks, by name or in task order."""

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, found {self.rate}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """Gammas in task order."""
        gammas = per_task("gamma", self.gamma, tasks, 1.0)
        for task, gamma in zip(tasks, gammas, strict=True):
            if not gamma >= 0:
                raise ValueError(f"gamma must be at least 0, found {gamma} for task {task!r}")
        return replace(self, gamma=gammas)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """Averages of the indicators, whether there has been one, and whether the user gave one."""
        flags = {name: torch.zeros(tasks, dtype=torch.bool) for name in ("observed", "measured")}
        return {"average": torch.zeros(tasks), **flags}

    def prior(self, tasks: int) -> Tensor:
        """One each, until there is an indicator."""
        return torch.ones(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """Focal weights of the averaged indicators; a task never seen gets the mean of the others."""
        assert isinstance(self.gamma, tuple)
        state = self._averages(state, seen)
        average, observed = state["average"], state["observed"]
        weights = -((1 - average) ** constant(self.gamma, average)) * average.clamp(min=_SMALLEST).log()
        mean = torch.where(observed, weights, 0).sum() / observed.sum().clamp(min=1)
        weights = torch.where(observed, weights, torch.where(observed.any(), mean, 1.0))
        return Decision(weights, state)

    def _averages(self, state: State, seen: Observation) -> State:
        """k after this step. Indicators and exp(-loss) do not mix: the first real one replaces what stood in for it."""
        stand_in = (-seen.losses).exp()
        metrics = torch.full_like(stand_in, torch.nan) if seen.metrics is None else seen.metrics
        given = metrics.isfinite()
        measured = state["measured"] | (seen.ok & given)
        goes_on = state["observed"] & (state["measured"] | ~given)
        rate = torch.where(goes_on, constant([self.rate], stand_in), 1)
        newest = torch.where(given, metrics, stand_in).clamp(_SMALLEST, 1)
        average = rate * newest + (1 - rate) * state["average"]
        average = torch.where(seen.ok & (given | ~measured), average, state["average"])
        return {"average": average, "observed": state["observed"] | seen.ok, "measured": measured}
