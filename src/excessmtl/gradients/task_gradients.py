"""The gradients of every task in one (micro-)batch: what is usable, what rules look at, and the weighted sum.

Nothing here reads a device value: which tasks are usable is known as a tensor only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.at_representation import AtRepresentation, gated_sum
from excessmtl.gradients.own_leaves import OwnLeaves
from excessmtl.gradients.samples import Sample, Samples
from excessmtl.graph.representation import Representation
from excessmtl.tensors import (
    dense,
    flags,
    index_of,
    is_finite,
    magnitude,
    split_by_parameter,
    usable,
    zero_unless,
)

Contribution = tuple[Tensor | Representation, Tensor]
"""A leaf or a representation, and the gradient that enters there."""
Gates = Sequence[Sequence[Tensor]]
"""Per task and representation: a multiplier for every entry."""


class AtParameters:
    """The gradients of all tasks at shared parameters, side by side in one [m, n] matrix (fp32 or wider).

    A gradient is copied as soon as it is there, so that only those of one backward pass are alive beside the matrix.
    """

    def __init__(self, parameters: Sequence[Tensor], tasks: int) -> None:
        wide = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
        self.parameters = parameters
        self._sizes = [parameter.numel() for parameter in parameters]
        self.matrix = parameters[0].new_empty(tasks, sum(self._sizes), dtype=wide, requires_grad=False)

    def take(self, tasks: Sequence[int], gradients: Sequence[Tensor | None]) -> None:
        """Copy the gradients [k, ...] of these tasks; zero where there is none."""
        first, end = tasks[0], tasks[-1] + 1
        if end - first == len(tasks):
            self._fill(slice(first, end), gradients)
            return
        for row, task in enumerate(tasks):
            rows = [None if gradient is None else gradient[row : row + 1] for gradient in gradients]
            self._fill(slice(task, task + 1), rows)

    def _fill(self, tasks: slice, gradients: Sequence[Tensor | None]) -> None:
        rows = self.matrix[tasks]
        parts = [
            rows.new_zeros(1).expand(len(rows), size) if gradient is None else dense(gradient).reshape(len(rows), -1)
            for size, gradient in zip(self._sizes, gradients, strict=True)
        ]
        torch.cat(parts, dim=1, out=rows)


@dataclass
class TaskGradients:
    """The losses of one (micro-)batch and their gradients, which carry the loss scale of mixed precision."""

    losses: Sequence[Tensor | None]
    """None where a task is missing."""
    masks: Sequence[Tensor | None]
    """Per task: which samples carry a label."""
    scale: Tensor | None
    """The loss scale of a GradScaler, or None."""
    at_z: Sequence[AtRepresentation] = ()
    """At each tensor of the representation."""
    at_leaves: OwnLeaves | None = None
    """At leaves outside `shared`, but those whose gradients follow from the ones at z."""
    at_parameters: Tensor | None = None
    """[m, n] at the shared parameters that are looked at, side by side."""
    parameters: Sequence[Tensor] = ()
    """These parameters."""
    complete: bool = False
    """Whether `at_parameters` is all that the shared parameters get: the trunk needs no further backward pass."""
    headless: bool = False
    """Whether no task has parameters of its own."""
    usable_tasks: Tensor | None = None
    """[m] which tasks are usable, where the gradients that tell have been dropped."""
    _zeroed: bool = field(default=False, repr=False)

    @cached_property
    def present(self) -> tuple[bool, ...]:
        """Whether a loss was given for the task."""
        return tuple([loss is not None for loss in self.losses])

    @cached_property
    def values(self) -> Tensor:
        """[m] fp32 losses; zero where the task is missing."""
        given = [loss for loss in self.losses if loss is not None]
        with torch.no_grad():
            if len(given) < len(self.losses):
                zero = torch.zeros_like(given[0])
                given = [loss if isinstance(loss, Tensor) else zero for loss in self.losses]
            return torch.stack([loss if loss.ndim == 0 else loss.reshape(()) for loss in given]).float()

    @cached_property
    def all_labelled(self) -> bool:
        """Whether a loss was given for every task, without a mask."""
        return all(self.present) and all(mask is None for mask in self.masks)

    @cached_property
    def labelled(self) -> Tensor:
        """[m] bool: a loss was given and, where there is a mask, it lets a sample through."""
        device = self.values.device
        present = flags(self.present, device)
        if self.all_labelled or all(mask is None for mask in self.masks):
            return present
        true = torch.ones((), dtype=torch.bool, device=device)
        return present & torch.stack([true if mask is None else mask.to(device).any() for mask in self.masks])

    @cached_property
    def finite(self) -> Tensor:
        """[m] bool: the loss and all gradients of the task can be worked with."""
        if self.usable_tasks is not None:
            return self.usable_tasks
        sizes = self.values.abs()
        if self.at_leaves is not None:
            sizes = self.at_leaves.added_to(sizes)
        for part in self.at_z:
            mine = part.magnitudes().to(sizes.device)
            if len(part.tasks) == len(sizes):
                sizes = sizes + mine
            else:
                sizes = sizes.index_add(0, index_of(part.tasks, sizes.device), mine)
        finite = usable(sizes)
        return finite if self.at_parameters is None else finite & usable(magnitude(self.at_parameters, dim=1))

    @cached_property
    def overflow(self) -> Tensor | None:
        """Whether the loss scale is to blame for a gradient that is not finite (None without a scaler).

        The scaler must then see it and lower the scale; leaving the task out would hide it for ever. At a scale of one
        or less the scale cannot be to blame, and the task is left out like any other.
        """
        if self.scale is None:
            return None
        return (self.labelled & is_finite(self.values) & ~self.finite).any() & (self.scale > 1)

    @cached_property
    def ok(self) -> Tensor:
        """[m] bool: the task takes part in this step."""
        ok = self.finite if self.all_labelled else self.labelled & self.finite
        return ok if self.overflow is None else ok & ~self.overflow

    @cached_property
    def skipped(self) -> Tensor:
        """[m] bool: labelled, and yet without a part in this step because something about the task is not finite."""
        skipped = ~self.ok if self.all_labelled else self.labelled ^ self.ok  # who is ok is labelled
        if self.overflow is None:
            return skipped
        return skipped & (~self.overflow | ~is_finite(self.values))  # not the task's fault, unless its loss is bad

    def _zero(self) -> None:
        """Set everything of the tasks without a part in this step to zero, once."""
        if self._zeroed:
            return
        self._zeroed = True
        for part in self.at_z:
            part.zero_unless(self._among(self.ok, part))
        if self.at_leaves is not None:
            self.at_leaves.zero_unless(self.ok)
        if self.at_parameters is not None:
            zero_unless(self.ok[:, None], self.at_parameters)

    def _among(self, values: Tensor, part: AtRepresentation) -> Tensor:
        """The entries of `values` [m] for the tasks of a part."""
        return values if len(part.tasks) == len(self.losses) else values[index_of(part.tasks, values.device)]

    def _unscaled(self, values: Tensor) -> Tensor:
        return values if self.scale is None else values / self.scale

    # ------------------------------------------------------------------ what rules look at

    @cached_property
    def matrix(self) -> Tensor | None:
        """[m, n] the gradients at parameters without the loss scale; zero rows where not ok."""
        self._zero()
        return None if self.at_parameters is None else self._unscaled(self.at_parameters)

    @cached_property
    def rows_at_parameters(self) -> tuple[Tensor, ...]:
        """The same parameter by parameter."""
        return () if self.matrix is None else split_by_parameter(self.matrix, self.parameters)

    def matrix_of(self, wanted: Sequence[Tensor]) -> Tensor:
        """[m, n] the same for these parameters alone. A graph with a skip connection may have needed more of them."""
        assert self.matrix is not None
        if list(map(id, wanted)) == list(map(id, self.parameters)):
            return self.matrix
        rows = dict(zip(map(id, self.parameters), self.rows_at_parameters, strict=True))
        return torch.cat([rows[id(parameter)] for parameter in wanted], dim=1)

    def rows_at_representation(self) -> tuple[Tensor, ...]:
        """One [m, n] matrix for each tensor of the representation, without the loss scale; zero rows where not ok."""
        self._zero()
        return tuple(self._unscaled(self._rows(part)) for part in self.at_z)

    def _rows(self, part: AtRepresentation) -> Tensor:
        rows = part.tensors.flatten(1)
        rows = rows if rows.dtype == torch.float64 else rows.float()
        if len(part.tasks) == len(self.losses):
            return rows
        return rows.new_zeros(len(self.losses), rows.shape[1]).index_copy(0, index_of(part.tasks, rows.device), rows)

    def samples(self, task: int, batch: int = 0) -> list[Sample]:
        """What one task shows at the representation, without the loss scale."""
        self._zero()
        if not self.present[task]:
            return []
        parts = [(part, part.tasks.index(task)) for part in self.at_z if task in part.tasks]
        return [
            Sample(part.representation.values, self._unscaled(part.tensors[place].float()), self.masks[task], batch)
            for part, place in parts
        ]

    def samples_of_all(self) -> Samples | None:
        """The same for all tasks in one, where they see one tensor and there is no loss scale."""
        self._zero()
        if self.scale is not None or len(self.at_z) != 1 or len(self.at_z[0].tasks) < len(self.losses):
            return None
        return Samples(self.at_z[0].representation.values, self.at_z[0], self.masks, self.present)

    def own(self) -> list[list[tuple[Tensor, Tensor]]]:
        """Per task: (leaf, gradient) for the leaves outside `shared`, with the loss scale; zero where not ok."""
        self._zero()
        pairs: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self.losses]
        if self.at_leaves is not None:
            pairs = self.at_leaves.per_task()
        for part in self.at_z:
            for task, leaf, gradient in part.own_gradients():
                pairs[task].append((leaf, gradient))
        return pairs

    # ------------------------------------------------------------------ what is made of them

    def weighted_sum(self, weights: Tensor, own: Tensor | None, gates: Gates | None) -> list[Contribution]:
        """The combined gradient: `weights` (or `gates`) on what is shared, `own` (None: 1) on what is a task's own."""
        self._zero()
        parts = self._combined(weights, own, gates)
        if self.overflow is not None:
            poison = torch.where(self.overflow, torch.nan, 1.0)
            parts = [(target, gradient * poison.to(gradient.dtype)) for target, gradient in parts]
        return parts

    def _combined(self, weights: Tensor, own: Tensor | None, gates: Gates | None) -> list[Contribution]:
        parts: list[Contribution] = []
        if self.at_leaves is not None:
            parts += self.at_leaves.weighted_sum(weights, own)
        seen = [0] * len(self.losses)
        for part in self.at_z:
            parts += [(leaf, gradient) for _, leaf, gradient in part.leaf_gradients(own)]
            if self.complete:  # the trunk has been passed
                continue
            if gates is None:
                combined = part.weighted_sum(self._among(weights, part))
            else:
                pairs = [(place, task) for place, task in enumerate(part.tasks) if self.present[task]]
                combined = gated_sum(part, {place: gates[task][seen[task]] for place, task in pairs})
                for _, task in pairs:
                    seen[task] += 1
            parts.append((part.representation, combined))
        if self.complete and self.at_parameters is not None:
            combined = weights.to(self.at_parameters.dtype) @ self.at_parameters
            for parameter, gradient in zip(self.parameters, split_by_parameter(combined, self.parameters), strict=True):
                parts.append((parameter, gradient.view(parameter.shape).to(parameter.dtype)))
        return parts

    # ------------------------------------------------------------------ micro-batches that wait for the last one

    def statistics(self) -> "TaskGradients":
        """The losses, and what rules look at at the representation, without the autograd graph."""
        return self._only([part.without_graph() for part in self.at_z])

    def held_back(self) -> "TaskGradients":
        """All gradients, to be weighted later; without those at the representation, where the trunk has been passed."""
        return self._only([], OwnLeaves.of(self.own()))

    def numbers(self) -> "TaskGradients":
        """The losses, and which tasks are usable."""
        return self._only([])

    def _only(self, at_z: Sequence[AtRepresentation], at_leaves: OwnLeaves | None = None) -> "TaskGradients":
        self._zero()
        pairs = zip(self.values.unbind(), self.present, strict=True)
        losses = [value if present else None for value, present in pairs]
        return replace(self, losses=losses, at_z=at_z, at_leaves=at_leaves, usable_tasks=self.finite)

    # ------------------------------------------------------------------ other tensors in place of these

    @property
    def tensors(self) -> list[Tensor] | None:
        """All tensors that are read from here on; None where a CUDA graph cannot read others in their place."""
        leaves = self.at_leaves
        if len(self.at_z) != 1 or (leaves is not None and leaves.loose):
            return None
        (part,) = self.at_z
        return [
            *(loss for loss in self.losses if loss is not None),
            part.representation.stored,
            *part.stored,
            *(() if leaves is None else leaves.stored),
            *(mask for mask in self.masks if mask is not None),
            *(() if self.at_parameters is None else (self.at_parameters,)),
        ]

    @property
    def layout(self) -> Any:
        """Everything but the tensors: equal for batches that take the same operations."""
        (part,) = self.at_z
        masked = tuple([mask is not None for mask in self.masks])
        parts = type(part).__name__, part.layout, None if self.at_leaves is None else self.at_leaves.layout
        return self.present, masked, *parts, self.complete, tuple(map(id, self.parameters))

    def with_tensors(self, tensors: Sequence[Tensor]) -> "TaskGradients":
        """The same batch made of other tensors, in the order of `tensors`, without an autograd graph."""
        remaining = iter(tensors)
        losses = [None if loss is None else next(remaining) for loss in self.losses]
        (part,) = self.at_z
        z = next(remaining)
        at_z = [part.with_stored(z, [next(remaining) for _ in part.stored])]
        at_leaves = self.at_leaves
        if at_leaves is not None:
            at_leaves = at_leaves.with_stored([next(remaining) for _ in at_leaves.stored])
        masks = [None if mask is None else next(remaining) for mask in self.masks]
        matrix = None if self.at_parameters is None else next(remaining)
        return replace(
            self, losses=losses, masks=masks, at_z=at_z, at_leaves=at_leaves, at_parameters=matrix, _zeroed=False
        )
