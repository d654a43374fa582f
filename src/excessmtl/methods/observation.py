"""What one step shows to a method: losses, and per-task gradients in the form the method asks for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from excessmtl.distributed.processes import Reduction, no_reduction
from excessmtl.gradients.task_gradients import Sample, Samples

_BLOCK = 2**15


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
    offsets: tuple[int, ...] = ()
    """Shared parameters only: where each row matrix starts when all shared parameters, frozen ones too, stand side by
    side."""
    samples: Callable[[int], Sequence[Sample]] = lambda task: ()
    """Representation only: the batches of one task, gradients zero where not ok."""
    samples_of_all: Sequence[Samples] = ()
    """The same for all tasks at once, batch by batch, where they all see one tensor; else empty."""
    heads: bool = True
    """Whether any task has parameters of its own."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `backward` that the rule names in `uses`, as they were given."""
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
    in_blocks = rows.shape[1] // _BLOCK * _BLOCK
    rest = rows[:, in_blocks:] @ rows[:, in_blocks:].T
    if not in_blocks:
        return rest
    blocks = rows[:, :in_blocks].reshape(len(rows), -1, _BLOCK).transpose(0, 1)
    return (blocks @ blocks.mT).sum(0) + rest


def labelled_samples(labelled: Tensor | None, size: int, positions: int = 1) -> Tensor | None:
    """[size] which samples carry a label, from a mask with an entry for each of them; a ValueError for any other mask.

    Or with an entry for each of their positions, where outputs for the tokens of a sequence have been flattened.
    """
    if labelled is not None and len(labelled) == size * positions > size:
        return labelled.view(size, positions).any(1)
    if labelled is not None and len(labelled) != size:
        each = f" or one per position, {size * positions}" if positions > 1 else ""
        raise ValueError(f"mask has {len(labelled)} entries for a batch of {size}; give one per sample{each}")
    return labelled
