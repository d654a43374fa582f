"""Uncertainty weighting: each task has a learned noise level.

Kendall et al., CVPR 2018, https://arxiv.org/abs/1705.07115. With s_i = log sigma_i^2:
    regression      0.5 e^{-s_i} l_i + 0.5 s_i        weight 0.5 e^{-s_i}
    classification  e^{-s_i} l_i + 0.5 s_i            weight e^{-s_i}
s is trained along with the model: here by an Adam step of its own (rate 0.025, no weight decay) on the closed-form
gradient. Implementations that hand s to the model's optimiser also give it the model's rate and weight decay. The
total weight is learned, so `scale="sum"` and `"mean"` leave it as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, constant, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.adam import adam_state, adam_step

_FACTORS = {"regression": 0.5, "classification": 1.0}
_LIMIT = 30.0
"""Of |s|: a loss that stays at zero would drive the weight beyond any number."""


@method("uw")
@dataclass(frozen=True)
class UW(Rule):
    """Less weight on tasks with a larger learned noise level."""

    simplex: ClassVar[bool] = False

    kinds: str | Mapping[str, str] | Sequence[str] = "regression"
    """"regression" or "classification", for all tasks, by name or in task order."""
    step_size: float = 0.025
    """Of Adam on the learned log variances."""

    def __post_init__(self) -> None:
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """Kinds in task order."""
        kinds: Sequence[str]
        if isinstance(self.kinds, str):
            kinds = [self.kinds] * len(tasks)
        elif isinstance(self.kinds, Mapping):
            if set(self.kinds) != set(tasks):
                raise ValueError(f"kinds must name each task once, found {sorted(self.kinds)} for {list(tasks)}")
            kinds = [self.kinds[task] for task in tasks]
        else:
            kinds = self.kinds if isinstance(self.kinds, Sequence) else [self.kinds]
        if len(kinds) != len(tasks):
            raise ValueError(f"kinds has {len(kinds)} values for {len(tasks)} tasks; give one per task")
        for kind in kinds:
            if kind not in _FACTORS:
                raise ValueError(f"kinds must be 'regression' or 'classification', found {kind!r}")
        return replace(self, kinds=tuple(kinds))

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """s = 0 for every task, and its optimiser."""
        return {"log_variances": torch.zeros(tasks), **adam_state(tasks)}

    def prior(self, tasks: int) -> Tensor:
        """At s = 0."""
        return torch.tensor([_FACTORS[kind] for kind in self.kinds])

    def update(self, state: State, seen: Observation) -> Decision:
        """Weights at the present s, then a step on s: d/ds = 0.5 - w_i l_i."""
        factors = constant([_FACTORS[kind] for kind in self.kinds], seen.losses)
        weights = factors * (-state["log_variances"]).exp()
        gradient = 0.5 - weights * seen.losses
        moved, optimiser = adam_step(state["log_variances"], gradient, state, seen.ok, self.step_size)
        return Decision(weights, {"log_variances": moved.clamp(-_LIMIT, _LIMIT), **optimiser})
