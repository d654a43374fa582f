"""The paper's estimate on the adapter gradient at the representation: ours, for the price of uniform weighting.

Algorithm 1 (`paper.py`) with another gradient: that of a virtual linear layer at the representation
(`excessmtl.excess.excess_risk`), so that one backward pass through the trunk serves all tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.excess.excess_risk import Adapter
from excessmtl.excess.paper import PaperWeights, excess_risks
from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, State
from excessmtl.methods.observation import Observation


@dataclass(frozen=True)
class PaperExcessAtRepresentation(PaperWeights):
    """The paper's formula and weights, with the mean adapter gradient for g."""

    probe: ClassVar[Probe] = Probe.REPRESENTATION
    per_sample: ClassVar[bool] = True

    width: int = 32
    """Width the representation is projected to."""
    seed: int = 0
    """Of the projection."""
    batch_dim: int = 0
    """The dimension of the representation that counts samples."""
    feature_dim: int | None = None
    """The one that counts features; None: the second of four or more, else the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._adapter()

    def _adapter(self) -> Adapter:
        return Adapter(self.width, self.seed, self.batch_dim, self.feature_dim)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """One small accumulator whatever the trunk, and the state of the weights."""
        return {"squares": torch.zeros(tasks, (self.width + 1) * self.width), **super().init(tasks, shared)}

    def update(self, state: State, seen: Observation) -> Decision:
        """Eq. 6, 7 and 9."""
        rows = self._adapter().moments(seen).first.flatten(1)
        squares = torch.addcmul(state["squares"], rows, rows)  # Eq. 7; rows are zero where a task is not ok
        risks = torch.where(seen.ok, excess_risks(rows, state["squares"]), 0)  # Eq. 6
        return self.weigh({**state, "squares": squares}, risks, seen.ok)
