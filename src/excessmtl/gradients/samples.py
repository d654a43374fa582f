"""What tasks show at one tensor of the representation, sample by sample."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from excessmtl.gradients.at_representation import AtRepresentation


@dataclass(frozen=True)
class Sample:
    """One tensor of the representation as one task sees it: values, gradient, which samples carry a label."""

    z: Tensor
    dz: Tensor
    labelled: Tensor | None = None
    batch: int = 0
    """Which micro-batch it belongs to; several tensors of one micro-batch describe the same samples."""


@dataclass(frozen=True)
class Samples:
    """One tensor of the representation as all tasks see it."""

    z: Tensor
    gradients: AtRepresentation
    """Zero where a task is not ok."""
    labelled: Sequence[Tensor | None]
    """Per task: which samples carry a label."""
    present: Sequence[bool]
    """Whether a loss was given for the task."""


def check_mask(labelled: Tensor | None, size: int) -> None:
    """A ValueError for a mask that does not have one entry per sample."""
    if labelled is not None and len(labelled) != size:
        raise ValueError(f"mask has {len(labelled)} entries for a batch of {size}; give one per sample")
