"""What one step shows to a method: losses, and per-task gradients in the form the method asks for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Protocol

import torch
from torch import Generator, Tensor

from excessmtl.gradients.distributed import Pool, alone

_BLOCK = 2**15


class Probe(Enum):
    """Where a method looks at the tasks' gradients; the engine gathers no more than that."""

    LOSSES = "losses"
    """Nowhere: the loss values are enough."""
    REPRESENTATION = "representation"
    """At the shared representation z: one backward per head, one through the trunk."""
    LAYER = "layer"
    """At the last shared layer."""
    SHARED = "all"
    """At every shared parameter: one backward through the trunk per task."""


@dataclass(frozen=True)
class Sample:
    """One tensor of the representation as a task sees it: values, loss gradient, which rows carry a label."""

    z: Tensor
    dz: Tensor
    labelled: Tensor | None = None
    batch: int = 0
    """Which micro-batch it belongs to; several tensors of one micro-batch describe the same samples."""


class Gradients(Protocol):
    """The gradients of all tasks at one tensor, however they are kept."""

    @property
    def tensors(self) -> Tensor:
        """[m, ...]"""

    def times(self, matrix: Tensor) -> Tensor:
        """The same times a matrix, in fp32; cheaper than by hand where they are kept as products."""


@dataclass(frozen=True)
class Samples:
    """One tensor of the representation as all tasks see it."""

    z: Tensor
    gradients: "Gradients"
    """Zero where not ok."""
    labelled: Sequence[Tensor | None]
    """Per task: which rows carry a label."""
    there: Sequence[bool]
    """Whether a loss was given for the task."""

    @property
    def dz(self) -> Tensor:
        """[m, ...]"""
        return self.gradients.tensors.float()

    def counts(self, size: int) -> Tensor:
        """[m]: how many of the `size` samples of the batch carry a label."""
        if all(self.there) and all(mask is None for mask in self.labelled):
            return self.z.new_full((len(self.there),), size, dtype=torch.float32)
        every, none = (self.z.new_full((), count, dtype=torch.float32) for count in (size, 0))
        counts = []
        for there, mask in zip(self.there, self.labelled, strict=True):
            check_mask(mask, size)
            counts.append(none if not there else every if mask is None else mask.to(every.device).sum().float())
        return torch.stack(counts)


def check_mask(labelled: Tensor | None, size: int) -> None:
    """Refuse a mask that does not have one entry per sample."""
    if labelled is not None and len(labelled) != size:
        raise ValueError(f"mask has {len(labelled)} entries for a batch of {size}; give one per sample")


def _gram(rows: Tensor) -> Tensor:
    """rows @ rows.T in blocks: a few very long rows as one product would keep most of a GPU waiting."""
    whole = rows.shape[1] // _BLOCK * _BLOCK
    rest = rows[:, whole:] @ rows[:, whole:].T
    if not whole:
        return rest
    blocks = rows[:, :whole].reshape(len(rows), -1, _BLOCK).transpose(0, 1)
    return (blocks @ blocks.mT).sum(0) + rest


@dataclass(frozen=True)
class Observation:
    """Everything a rule may look at in one step. Tensors are fp32, unscaled, in task order.

    Tasks that are missing from the batch or not finite have `ok` False and zeros everywhere else, so a rule
    can compute over all tasks and let `torch.where(ok, ...)` keep what it remembers of the others.
    """

    losses: Tensor
    """[m]; zero where not ok."""
    ok: Tensor
    """[m] bool: labelled in this batch, and finite."""
    rows: tuple[Tensor, ...] = ()
    """Per-task gradients at the probe: one [m, n] matrix per probed tensor (zero rows where not ok)."""
    matrix: Tensor | None = None
    """Shared probe only: the rows of all parameters side by side, [m, n]; `rows` are its columns."""
    positions: tuple[int, ...] = ()
    """Shared probe only: which shared parameter each row matrix belongs to (frozen ones have none)."""
    offsets: tuple[int, ...] = ()
    """Shared probe only: where each row matrix would start if all shared parameters stood side by side."""
    samples: Callable[[int], Sequence[Sample]] = lambda task: ()
    """Representation probe only: the batches of one task, gradients zero where not ok."""
    together: Sequence[Samples] = ()
    """The same for all tasks at once, batch by batch, where they all see one tensor; else empty."""
    reduced: Tensor | None = None
    """Shared probe, streaming: [m] what the rule's `reduce` made of each task's gradient; there are no rows then."""
    metrics: Tensor | None = None
    """[m] key performance indicators, NaN where the caller gave none."""
    cross: Tensor | None = None
    """[m, m]: inner products of validation gradients (rows) with training gradients (columns)."""
    generator: Generator = field(default_factory=Generator)
    """The balancer's own CPU random stream, saved and restored with its state."""
    pool: Pool = alone
    """Sums what a rule makes of this process's samples over all processes; the rest of this is pooled already."""
    local_rows: bool = False
    """Whether the rows are of samples of this process alone, so that only their products can be pooled."""

    @property
    def tasks(self) -> int:
        """The number of tasks m."""
        return len(self.losses)

    @cached_property
    def gram(self) -> Tensor:
        """[m, m] Gram matrix of the per-task gradients, summed over the probed tensors."""
        if self.matrix is not None:
            return _gram(self.matrix)
        gram = self.losses.new_zeros(self.tasks, self.tasks)
        for row in self.rows:
            gram = gram + _gram(row)
        return self.pool(gram) if self.local_rows else gram

    def mean_over_ok(self, values: Tensor) -> Tensor:
        """Mean of `values` [m] over the tasks that count in this step (0 when there is none)."""
        return torch.where(self.ok, values, 0).sum() / self.ok.sum().clamp(min=1)
