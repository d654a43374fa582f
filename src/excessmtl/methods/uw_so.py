"""UW-SO: uncertainty weighting with the noise levels solved for instead of learned, softened by a softmax.

Kirchdorfer et al., GCPR 2024, https://arxiv.org/abs/2408.07985. The noise level that minimises the uncertainty-weighted
loss of `uw` is a function of the loss, and the weight at the optimum is 1 / l_i (UW-O). UW-SO normalises these:
    w = softmax((1 / l) / T)
with the losses as constants. T is the one option, to be tuned per data set: small T puts all weight on the task with
the smallest loss. A task that is missing from a batch is compared by its latest loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.loss_values import latest, latest_state, softmax_over
from excessmtl.methods.observation import Observation


@method("uw_so")
@dataclass(frozen=True)
class UWSO(Rule):
    """More weight on smaller losses: the softmax of their inverses."""

    temperature: float = 1.0
    """T, the smaller, the more weight on the smallest loss."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be positive, found {self.temperature}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """The latest loss of every task."""
        return latest_state(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """w = softmax((1 / l) / T)."""
        losses, known, state = latest(state, seen)
        return Decision(softmax_over(known, 1 / losses / self.temperature), state)
