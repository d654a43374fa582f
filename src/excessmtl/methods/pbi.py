"""PBI: how far the losses have come along a preference, and how far they are off it.

Zhang & Li, "MOEA/D", IEEE Trans. Evolutionary Computation 2007, https://doi.org/10.1109/TEVC.2007.892759.
With r the preference, a unit vector, and L the vector of losses:
    d_1 = L . r,   d_2 = |L - d_1 r|,   train d_1 + theta d_2,   w = r + theta (L - d_1 r) / d_2
The second term draws the losses to the ratio of the preferences: r = (1, 1) wants equal losses. A loss below its share
gets a negative weight where theta is large, which trains it backwards. A task that is missing from a batch counts with
its latest loss. The total is the method's own, so `scale="sum"` and `"mean"` leave it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch

from excessmtl.engine.observation import Observation
from excessmtl.methods.base import Decision, Rule, State, constant, method
from excessmtl.methods.loss_values import latest, latest_state, preferences


@method("pbi")
@dataclass(frozen=True)
class PBI(Rule):
    """Losses along a preference, with a penalty on being off it."""

    simplex: ClassVar[bool] = False

    theta: float = 0.5
    """The penalty; the paper's 5 is for populations, and trains most networks backwards."""
    preference: Mapping[str, float] | Sequence[float] | None = None
    """r, by name or in task order; None: equal."""

    def __post_init__(self) -> None:
        if not 0 <= self.theta < float("inf"):
            raise ValueError(f"theta must be at least 0 and finite, found {self.theta}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """Preferences in task order, with the sum one."""
        return replace(self, preference=preferences(self.preference, tasks))

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """The latest loss of every task."""
        return latest_state(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """The derivative of d_1 + theta d_2 by each loss."""
        assert isinstance(self.preference, tuple)
        losses, known, state = latest(state, seen)
        tiny = torch.finfo(losses.dtype).tiny
        r = torch.where(known, constant(self.preference, losses), 0)
        r = r / r.norm().clamp(min=tiny)
        values = torch.where(known, losses, 0)
        values = values / values.max().clamp(min=tiny)  # squares of large losses overflow
        off = values - (values @ r) * r
        distance = off.norm()
        # On the preference itself the distance has no derivative; what is left of it is rounding.
        away = torch.where(distance > 1e-6, off / distance.clamp(min=1e-6), 0)
        return Decision(r + self.theta * away, state)
