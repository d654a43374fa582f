"""Static scalarization: weights chosen by the user, which are the multipliers applied.

Without any they are 1 each, as those of `uniform` are by default. `scale="sum"` and `"mean"` leave them as they are.
Hu et al., NeurIPS 2023, https://arxiv.org/abs/2308.13985, discuss what static scalarization can and cannot reach.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, constant, method, per_task
from excessmtl.methods.observation import Observation


@method("static")
@dataclass(frozen=True)
class Static(Rule):
    """Fixed weights given by the user; 1 each without any."""

    simplex: ClassVar[bool] = False

    weights: Mapping[str, float] | Sequence[float] | None = None
    """By task name or in task order; None: 1 each."""

    def bind(self, tasks: Sequence[str]) -> Self:
        """Weights in task order."""
        weights = per_task("weights", self.weights, tasks, 1.0)
        for task, weight in zip(tasks, weights, strict=True):
            if not 0 <= weight < float("inf"):
                raise ValueError(f"weights must be at least 0 and finite, found {weight} for task {task!r}")
        if not any(weights):
            raise ValueError("weights are all 0, so nothing would be trained; give at least one task a weight")
        return replace(self, weights=weights)

    def prior(self, tasks: int) -> Tensor:
        """As given."""
        assert isinstance(self.weights, tuple)
        return torch.tensor(self.weights)

    def update(self, state: State, seen: Observation) -> Decision:
        """w_i as given."""
        assert isinstance(self.weights, tuple)
        return Decision(constant(self.weights, seen.losses), state)
