"""PBI: how far the losses have come along a preference, and how far they are off it.

Zhang & Li, "MOEA/D", IEEE Trans. Evolutionary Computation 2007, https://doi.org/10.1109/TEVC.2007.892759.
With r the preference, a unit vector, and L the vector of losses:
    d_1 = L . r,   d_2 = |L - d_1 r|,   train d_1 + theta d_2,   w = r + theta (L - d_1 r) / d_2
The second term draws the losses to the ratio of the preferences: r = (1, 1) wants equal losses. A loss below its share
gets a negative weight where theta is large, which trains it backwards. A task that is missing from a batch counts with
its latest loss. The total is the method's own, so `scale="sum"` and `"mean"` leave it.
"""

from dataclasses import dataclass

import torch

from excessmtl.methods.base import Decision, State, method
from excessmtl.methods.observation import Observation
from excessmtl.methods.preference import Preferring


@method("pbi")
@dataclass(frozen=True)
class PBI(Preferring):
    """Losses along a preference, with a penalty on being off it."""

    theta: float = 0.5
    """The penalty; the paper's 5 is for populations, and trains most networks backwards."""

    def __post_init__(self) -> None:
        if not 0 <= self.theta < float("inf"):
            raise ValueError(f"theta must be at least 0 and finite, found {self.theta}")

    def update(self, state: State, seen: Observation) -> Decision:
        """The derivative of d_1 + theta d_2 by each loss."""
        r, losses, _, state = self.compared(state, seen)
        r = r / r.norm().clamp(min=torch.finfo(losses.dtype).tiny)
        off = losses - (losses @ r) * r
        distance = off.norm()
        # On the preference itself the distance has no derivative; what is left of it is rounding.
        away = torch.where(distance > 1e-6, off / distance.clamp(min=1e-6), 0)
        return Decision(r + self.theta * away, state)
