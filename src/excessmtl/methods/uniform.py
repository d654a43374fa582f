"""Uniform scalarization: every task weighs the same.

He et al. 2024, https://arxiv.org/abs/2402.02009, Sec. 4 (the baseline alpha_i = 1/m). Every multiplier is 1 by
default, so a step is that of `sum(losses).backward()`; with `scale="mean"` it is 1/m, that of the mean of the losses.
"""

from dataclasses import dataclass

import torch

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.observation import Observation


@method("uniform")
@dataclass(frozen=True)
class Uniform(Rule):
    """Equal weights: the sum of the losses."""

    def update(self, state: State, seen: Observation) -> Decision:
        """w_i = 1/m, whatever the step shows."""
        return Decision(torch.full_like(seen.losses, 1 / seen.tasks), state)
