"""DB-MTL: logarithms of the losses, and gradients of equal length, averaged over the steps.

Lin et al., "Dual-Balancing for Multi-Task Learning", 2023, https://arxiv.org/abs/2308.12029, Algorithm 1. In step t:
    h_i = grad log l_i = g_i / l_i,   b_i <- r_t b_i + (1 - r_t) h_i,   r_t = r t^-s
    d = sum_i (max_j |b_j| / |b_i|) b_i
The shared parameters take d, the heads the gradient of log l_i: `step.weights` are 1 / l_i. b has as many numbers per
task as there are shared parameters, and starts at 0 without a correction, as with the authors. Losses must be positive;
what is below 1e-8 counts as 1e-8. The length of d is the method's own, so `scale="sum"` and `"mean"` leave it.
`protect` and `every` are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.loss_values import positive
from excessmtl.methods.observation import Observation
from excessmtl.methods.row_memory import moved, rows_state, updated


@method("db_mtl")
@dataclass(frozen=True)
class DBMTL(Rule):
    """Gradients of the logarithms of the losses, brought to one length."""

    simplex: ClassVar[bool] = False
    probe: ClassVar[Probe] = Probe.SHARED
    directs: ClassVar[bool] = True

    decay: float = 0.9
    """r, of the moving average."""
    power: float = 0.0
    """s, how fast it falls."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be at least 0 and below 1, found {self.decay}")
        if not 0 <= self.power < float("inf"):
            raise ValueError(f"power must be at least 0 and finite, found {self.power}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """b = 0, and how many steps each task has taken."""
        return {"average": rows_state(tasks, shared), "steps": torch.zeros(tasks)}

    def prior(self, tasks: int) -> Tensor:
        """One each."""
        return torch.ones(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """The averages, then all of them at the length of the longest."""
        assert seen.matrix is not None
        weights = 1 / positive(seen.losses)
        steps = state["steps"] + seen.ok
        decay = self.decay * steps.clamp(min=1) ** -self.power
        average = moved(state["average"], weights[:, None] * seen.matrix, 1 - decay, seen)
        largest = torch.linalg.vector_norm(average, torch.inf, dim=1)  # squares of long gradients overflow
        relative = average / torch.where(largest > 0, largest, 1)[:, None]
        lengths = torch.where(seen.ok, largest * torch.linalg.vector_norm(relative, dim=1), 0)
        ratios = torch.where(lengths > 0, lengths.max() / torch.where(lengths > 0, lengths, 1), 0)
        new = {"average": updated(state["average"], average, seen), "steps": steps}
        return Decision(weights, new, direction=ratios @ average)
