"""What one step shows to a method: losses, and per-task gradients in the form the method asks for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Generator, Tensor

from excessmtl.distributed.processes import Reduction, mean_where, no_reduction, over_processes, processes
from excessmtl.graph.plan import Call, Probe
from excessmtl.tensors import filled, split_by_parameter, total

if TYPE_CHECKING:
    from excessmtl.gradients.task_gradients import TaskGradients

_BLOCK = 2**15


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
    """Per-task gradients where the rule looks: one [m, n] matrix per tensor (zero rows where not ok)."""
    matrix: Tensor | None = None
    """Shared parameters only: the rows of all parameters side by side, [m, n]; `rows` are its columns."""
    positions: tuple[int, ...] = ()
    """Shared parameters only: which shared parameter each row matrix belongs to (frozen ones have none)."""
    offsets: tuple[int, ...] = ()
    """Shared parameters only: where each row matrix starts when all shared parameters stand side by side."""
    samples: Callable[[int], Sequence[Sample]] = lambda task: ()
    """Representation only: the batches of one task, gradients zero where not ok."""
    samples_of_all: Sequence[Samples] = ()
    """The same for all tasks at once, batch by batch, where they all see one tensor; else empty."""
    heads: bool = True
    """Whether any task has parameters of its own."""
    metrics: Tensor | None = None
    """[m] key performance indicators, NaN where the caller gave none."""
    cross: Tensor | None = None
    """[m, m]: inner products of validation gradients (rows) with training gradients (columns)."""
    validation_losses: Tensor | None = None
    """[m], where `cross` is."""
    random_stream: Callable[[], Generator] = Generator
    """Returns the balancer's own CPU random stream, which is saved and restored with its state."""
    reduction: Reduction = no_reduction
    """Sums what a rule makes of this process's samples over all processes; everything else is summed already."""
    local_rows: bool = False
    """Whether the rows are of samples of this process alone, so that only their products can be summed."""

    @property
    def tasks(self) -> int:
        """The number of tasks m."""
        return len(self.losses)

    @property
    def generator(self) -> Generator:
        """The balancer's own CPU random stream."""
        return self.random_stream()

    @cached_property
    def gram(self) -> Tensor:
        """[m, m] Gram matrix of the per-task gradients, summed over the tensors looked at."""
        if self.matrix is not None:
            return _gram(self.matrix)
        gram = self.losses.new_zeros(self.tasks, self.tasks)
        for row in self.rows:
            gram = gram + _gram(row)
        return self.reduction(gram) if self.local_rows else gram

    def mean_over_ok(self, values: Tensor) -> Tensor:
        """Mean of `values` [m] over the tasks that count in this step (0 when there is none)."""
        return torch.where(self.ok, values, 0).sum() / self.ok.sum().clamp(min=1)


def _gram(rows: Tensor) -> Tensor:
    """rows @ rows.T in blocks: as one product, a few very long rows leave most of a GPU idle."""
    whole = rows.shape[1] // _BLOCK * _BLOCK
    rest = rows[:, whole:] @ rows[:, whole:].T
    if not whole:
        return rest
    blocks = rows[:, :whole].reshape(len(rows), -1, _BLOCK).transpose(0, 1)
    return (blocks @ blocks.mT).sum(0) + rest


def observe(
    batches: Sequence["TaskGradients"],
    call: Call,
    *,
    offsets: tuple[int, ...],
    validation: tuple[Tensor, Tensor] | None,
    random_stream: Callable[[], Generator],
) -> Observation:
    """All micro-batches of a step, on all processes, as the one observation the rule asked for.

    `offsets`: where each shared parameter starts when all of them stand side by side. `validation`: products with the
    validation gradients, and the validation losses.
    """
    probe, reduction, latest = call.probe, call.reduction, batches[-1]
    local = probe is Probe.REPRESENTATION
    rows: tuple[Tensor, ...] = ()
    matrix: Tensor | None = None
    if local and not call.per_sample:
        rows = tuple(row for batch in batches for row in batch.rows_at_representation())
    elif probe in (Probe.SHARED, Probe.LAYER):
        wanted = call.shared.layer if probe is Probe.LAYER else latest.parameters
        matrix = total([batch.matrix_of(wanted) for batch in batches]).float()
        matrix = matrix if reduction is no_reduction else over_processes(matrix) / processes()
        rows = split_by_parameter(matrix, wanted)
    zero = filled(0, len(latest.values), latest.values.device)
    losses = total([torch.where(batch.ok, batch.values, zero) for batch in batches])
    ok = latest.ok if len(batches) == 1 else torch.stack([batch.ok for batch in batches]).any(0)
    metrics = call.metrics
    cross, validation_losses = (None, None) if validation is None else validation
    if reduction is not no_reduction:
        count = processes()
        losses, ok = mean_where(losses, ok, reduction)
        rows = tuple(row / count for row in rows) if local else rows
        cross = None if cross is None else reduction(cross) / count
        validation_losses = None if validation_losses is None else reduction(validation_losses) / count
        metrics = None if metrics is None else mean_where(metrics, ~metrics.isnan(), reduction)[0]
    shared = probe is Probe.SHARED
    return Observation(
        losses=losses,
        ok=ok,
        rows=tuple(row.float() for row in rows),
        matrix=matrix if shared else None,
        positions=tuple(call.trainable) if shared else (),
        offsets=tuple(offsets[position] for position in call.trainable) if shared else (),
        samples=lambda task: [one for number, batch in enumerate(batches) for one in batch.samples(task, number)],
        samples_of_all=_samples_of_all(batches) if local and call.per_sample else (),
        heads=not latest.headless,
        metrics=metrics,
        cross=cross,
        validation_losses=validation_losses,
        random_stream=random_stream,
        reduction=reduction,
        local_rows=local,
    )


def _samples_of_all(batches: Sequence["TaskGradients"]) -> list[Samples]:
    found = [batch.samples_of_all() for batch in batches]
    complete = [one for one in found if one is not None]
    return complete if len(complete) == len(found) else []
