"""The paper's estimate on the adapter gradient at the representation: ours, for the price of uniform weighting.

Algorithm 1 (`excess_mtl.py`) with another gradient: that of a virtual linear layer at the representation
(`excessmtl.estimation.adapter`), so that one backward pass through the trunk serves all tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.engine.observation import Observation
from excessmtl.engine.plan import Probe
from excessmtl.estimation.adapter import Adapter
from excessmtl.estimation.paper import accumulate_and_estimate
from excessmtl.methods.base import Decision, State
from excessmtl.methods.excess_mtl import PaperWeights


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

    @property
    def takes_vectors(self) -> bool:
        """Not where the dimensions of a sequence are in an order of the user's."""
        return self.batch_dim == 0 and self.feature_dim in (None, -1)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """One small accumulator whatever the trunk, and the state of the weights."""
        return {"squares": torch.zeros(tasks, (self.width + 1) * self.width), **super().init(tasks, shared)}

    def update(self, state: State, seen: Observation) -> Decision:
        """Eq. 6, 7 and 9."""
        rows = self._adapter().moments(seen).first.flatten(1)
        risks, squares = accumulate_and_estimate(rows, state["squares"], seen.ok)
        return self.weigh({**state, "squares": squares}, risks, seen.ok)
