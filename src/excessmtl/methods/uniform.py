"""Uniform scalarization: every task weighs 1/m.

He et al. 2024, https://arxiv.org/abs/2402.02009, Sec. 4 (the baseline alpha_i = 1/m).
Some implementations sum the losses instead: pass `scale=len(tasks)` for that.
"""

from dataclasses import dataclass

import torch

from excessmtl.engine.observation import Observation
from excessmtl.methods.base import Decision, Rule, State, method


@method("uniform")
@dataclass(frozen=True)
class Uniform(Rule):
    """The mean of the losses."""

    def update(self, state: State, seen: Observation) -> Decision:
        """w_i = 1/m, whatever the step shows."""
        return Decision(torch.full_like(seen.losses, 1 / seen.tasks), state)
