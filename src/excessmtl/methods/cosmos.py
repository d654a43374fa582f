"""COSMOS: the weighted sum of the losses, and their angle with a preference.

Ruchte & Grabocka, "Scalable Pareto Front Approximation for Deep Multi-Objective Learning", ICDM 2021,
https://arxiv.org/abs/2103.13392. With r the preference and L the vector of losses:
    sum_i r_i l_i - c cos(r, L),   w_i = r_i - c (r_i - (r.L) l_i / |L|^2) / (|r| |L|)
The second term draws the losses to the ratio of the preferences: r = (1, 1) wants equal losses. This is the objective;
the paper's model also takes r as an input and sees another r in every batch, to learn a whole front at once. Weights
may be negative. A task that is missing from a batch counts with its latest loss. The preferences sum to one; the total
is the method's own, so `scale="sum"` and `"mean"` leave it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch

from excessmtl.engine.observation import Observation
from excessmtl.methods.base import Decision, Rule, State, constant, method
from excessmtl.methods.loss_values import latest, latest_state, preferences


@method("cosmos")
@dataclass(frozen=True)
class COSMOS(Rule):
    """A weighted sum of the losses that keeps them in the ratio of the weights."""

    simplex: ClassVar[bool] = False

    penalty: float = 1.0
    """c"""
    preference: Mapping[str, float] | Sequence[float] | None = None
    """r, by name or in task order; None: equal."""

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < float("inf"):
            raise ValueError(f"penalty must be at least 0 and finite, found {self.penalty}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """Preferences in task order, with the sum one."""
        return replace(self, preference=preferences(self.preference, tasks))

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """The latest loss of every task."""
        return latest_state(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """The derivative of the objective by each loss."""
        assert isinstance(self.preference, tuple)
        losses, known, state = latest(state, seen)
        r = torch.where(known, constant(self.preference, losses), 0)
        values = torch.where(known, losses, 0)
        largest = values.max().clamp(min=torch.finfo(values.dtype).tiny)
        unit = values / largest  # squares of large losses overflow
        length = unit.norm().clamp(min=torch.finfo(values.dtype).tiny)
        unit = unit / length
        angle = (r - (r @ unit) * unit) / r.norm().clamp(min=torch.finfo(values.dtype).tiny)
        return Decision(r - self.penalty * angle / (length * largest), state)
