"""What tasks show at one tensor of the representation, sample by sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from excessmtl.tensors import filled


@dataclass(frozen=True)
class Sample:
    """One tensor of the representation as one task sees it: values, gradient, which samples carry a label."""

    z: Tensor
    dz: Tensor
    labelled: Tensor | None = None
    batch: int = 0
    """Which micro-batch it belongs to; several tensors of one micro-batch describe the same samples."""


class Gradients(Protocol):
    """The gradients of all tasks at one tensor, however they are stored. Zero where a task is not ok."""

    @property
    def tensors(self) -> Tensor:
        """[m, ...]"""

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """For gradients [m, samples, features], times the matrix, and z [samples, k], in fp32.

        Both are sums over samples: [m, k, columns] of z' g, and [m, k] of z^2 |g|^2."""


@dataclass(frozen=True)
class Samples:
    """One tensor of the representation as all tasks see it."""

    z: Tensor
    gradients: Gradients
    labelled: Sequence[Tensor | None]
    """Per task: which samples carry a label."""
    there: Sequence[bool]
    """Whether a loss was given for the task."""

    @property
    def dz(self) -> Tensor:
        """[m, ...] fp32."""
        return self.gradients.tensors.float()

    def counts(self, size: int) -> Tensor:
        """[m]: how many of the `size` samples of the batch carry a label."""
        if all(self.there) and all(mask is None for mask in self.labelled):
            return filled(size, len(self.there), self.z.device)
        every, none = (self.z.new_full((), count, dtype=torch.float32) for count in (size, 0))
        counts = []
        for there, mask in zip(self.there, self.labelled, strict=True):
            check_mask(mask, size)
            counts.append(none if not there else every if mask is None else mask.to(every.device).sum().float())
        return torch.stack(counts)


def check_mask(labelled: Tensor | None, size: int) -> None:
    """A ValueError for a mask that does not have one entry per sample."""
    if labelled is not None and len(labelled) != size:
        raise ValueError(f"mask has {len(labelled)} entries for a batch of {size}; give one per sample")
