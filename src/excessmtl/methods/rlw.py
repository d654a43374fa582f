"""Random loss weighting: new weights at every step, from the softmax of standard normal draws.

Lin et al., TMLR 2022, https://arxiv.org/abs/2111.10603: w = softmax(z), z ~ N(0, I). The weights sum to one.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.observation import Observation


@method("rlw")
@dataclass(frozen=True)
class RLW(Rule):
    """Random weights at every step."""

    uses_host: ClassVar[bool] = True
    seed: int = 0
    """Of the balancer's own random stream."""

    def update(self, state: State, seen: Observation) -> Decision:
        """w = softmax(z); drawn for all tasks, so that a missing one does not shift the stream."""
        draws = torch.randn(seen.tasks, dtype=torch.float32, generator=seen.generator, device="cpu")
        return Decision(draws.softmax(0).to(seen.losses.device, non_blocking=True), state)
