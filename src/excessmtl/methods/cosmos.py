"""COSMOS: the weighted sum of the losses, and their angle with a preference.

Ruchte & Grabocka, "Scalable Pareto Front Approximation for Deep Multi-Objective Learning", ICDM 2021,
https://arxiv.org/abs/2103.13392. With r the preference and L the vector of losses:
    sum_i r_i l_i - c cos(r, L),   w_i = r_i - c (r_i - (r.L) l_i / |L|^2) / (|r| |L|)
The second term draws the losses to the ratio of the preferences: r = (1, 1) wants equal losses. This is the objective;
the paper's model also takes r as an input and sees another r in every batch, to learn a whole front at once. Weights
may be negative. A task that is missing from a batch counts with its latest loss. The preferences sum to one; the total
is the method's own, so `scale="sum"` and `"mean"` leave it.
"""

from dataclasses import dataclass

import torch

from excessmtl.methods.base import Decision, State, method
from excessmtl.methods.observation import Observation
from excessmtl.methods.preference import Preferring


@method("cosmos")
@dataclass(frozen=True)
class COSMOS(Preferring):
    """A weighted sum of the losses that keeps them in the ratio of the weights."""

    penalty: float = 1.0
    """c, how much the angle between losses and preference counts."""

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < float("inf"):
            raise ValueError(f"penalty must be at least 0 and finite, found {self.penalty}")

    def update(self, state: State, seen: Observation) -> Decision:
        """The derivative of the objective by each loss."""
        r, losses, largest, state = self.compared(state, seen)
        tiny = torch.finfo(losses.dtype).tiny
        length = losses.norm().clamp(min=tiny)
        unit = losses / length
        angle = (r - (r @ unit) * unit) / r.norm().clamp(min=tiny)
        return Decision(r - self.penalty * angle / (length * largest), state)
