"""The gradients of all separate heads in a few tensors, so that checking, masking and weighing takes few operations.

The reference (`excessmtl.engine.task_gradients.PerTask`) does the same task by task.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from excessmtl.engine.observation import Samples
from excessmtl.engine.representation import Representation
from excessmtl.engine.task_gradients import Contribution, Gates, PerTask
from excessmtl.engine.tensors import index_of, magnitude, zero_unless
from excessmtl.fast.separate_heads import Pairs


class AtRepresentation(ABC):
    """The gradients of all m tasks at z: `Stacked` and `Factored` store them in different ways.

    Subclasses are made of the tensors `stored`, which a CUDA graph replaces by others through `with_stored`.
    """

    tensors: Any
    """[m, ...]: all gradients in one tensor."""
    stored: Any
    """The tensors it is made of, apart from z."""
    layout: Any
    """Hashable; equal for what is computed by the same operations on tensors of the same shapes."""

    @abstractmethod
    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "AtRepresentation":
        """The same made of other tensors."""

    @abstractmethod
    def magnitudes(self) -> Tensor:
        """[m] fp32; not finite where a gradient is not."""

    @abstractmethod
    def zero_unless(self, ok: Tensor) -> None:
        """Set the gradients of the tasks that are not `ok` [m] to zero."""

    @abstractmethod
    def combined(self, weights: Tensor) -> Tensor:
        """The weighted sum."""

    def one_by_one(self) -> Sequence[Tensor]:
        """The gradient of each task."""
        found: Sequence[Tensor] = self.tensors.unbind()
        return found

    def times(self, matrix: Tensor) -> Tensor:
        """[m, ..., columns]: every gradient times a matrix, in fp32."""
        found: Tensor = self.tensors.float() @ matrix
        return found

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """For gradients [m, samples, features], times the matrix, and z [samples, k], in fp32.

        Both are sums over samples: [m, k, columns] of z' g, and [m, k] of z^2 |g|^2.
        """
        projected = self.times(matrix)
        return z.T @ projected, projected.square().sum(-1) @ z.square()

    def leaf_gradients(self, own: Tensor | None) -> list[tuple[int, Tensor, Tensor]]:
        """(task, leaf, gradient) for leaves whose gradients are known from those at z, times `own` [m] (None: 1)."""
        return []

    def own_gradients(self) -> list[tuple[int, Tensor, Tensor]]:
        """(task, leaf, gradient) for these leaves, where several tasks may share one."""
        return self.leaf_gradients(None)

    def statistics(self) -> "AtRepresentation":
        """What rules look at, in memory that nobody else overwrites."""
        return self


@dataclass(frozen=True)
class Stacked(AtRepresentation):
    """Tensors of one shape in one. Memory is laid out as in theirs: channels last stays channels last."""

    flat: Tensor
    """[k, n], in the order of memory."""
    shape: torch.Size
    order: tuple[int, ...]
    """Dimensions from the outermost to the innermost in memory."""
    filled: set[int] = field(default_factory=set)
    """The rows to which something was added."""

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "Stacked":
        """Copies of these."""
        order = memory_order(tensors[0])
        ordered = tensors if _usual(order) else [tensor.permute(order) for tensor in tensors]
        return cls(torch.stack([*ordered]).view(len(tensors), -1), tensors[0].shape, order)

    @classmethod
    def empty_like(cls, tensor: Tensor, count: int) -> "Stacked":
        """To be filled by `add`, then `finish`."""
        return cls(tensor.new_empty(count, tensor.numel()), tensor.shape, memory_order(tensor))

    def add(self, row: int, tensor: Tensor) -> None:
        """Copy a tensor to its row at once, while it is in the cache and before its memory is needed; or add it."""
        target = self.tensors[row]
        if row in self.filled:
            target.add_(tensor)
        else:
            self.filled.add(row)
            target.copy_(tensor)

    def finish(self) -> None:
        """Zero where nothing was added."""
        rows = self.flat.shape[0]
        for row in range(rows) if len(self.filled) < rows else ():
            if row not in self.filled:
                self.flat[row].zero_()

    @property
    def stored(self) -> list[Tensor]:
        """The one tensor."""
        return [self.flat]

    @property
    def layout(self) -> Any:
        """Shape and order in memory."""
        return self.shape, self.order

    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "Stacked":
        """The same with another tensor."""
        return replace(self, flat=stored[0])

    @cached_property
    def tensors(self) -> Tensor:
        """[k, ...]: in their original shape."""
        return self.shaped(self.flat)

    def shaped(self, rows: Tensor) -> Tensor:
        """[n] or [k, n] in the order of memory -> the original shape."""
        lead = rows.ndim - 1
        if _usual(self.order):
            return rows.reshape((*rows.shape[:lead], *self.shape))
        sizes = [self.shape[dim] for dim in self.order]
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return rows.reshape(*rows.shape[:lead], *sizes).permute(*range(lead), *(lead + place for place in back))

    def magnitudes(self) -> Tensor:
        """[k] norms."""
        return magnitude(self.flat, dim=1)

    def zero_unless(self, ok: Tensor) -> None:
        """Set the rows to zero where not `ok` [k]."""
        zero_unless(ok.unsqueeze(1), self.flat)

    def combined(self, weights: Tensor) -> Tensor:
        """The weighted sum, in the original shape."""
        return self.shaped(weights.to(self.flat.dtype) @ self.flat)


@dataclass(frozen=True)
class LeafGroup:
    """The gradients at leaves of one shape, of some of the tasks."""

    leaves: list[Tensor]
    tasks: tuple[int, ...]
    gradients: Stacked

    def among(self, values: Tensor) -> Tensor:
        """The entries of `values` [m] that belong to these leaves."""
        return values if self._of_all(values) else values[index_of(self.tasks, values.device)]

    def added_to(self, total: Tensor) -> Tensor:
        """`total` [m] and the norms of these gradients."""
        sizes = self.gradients.magnitudes()
        return total + sizes if self._of_all(total) else total.index_add(0, index_of(self.tasks, total.device), sizes)

    def weighted(self, own: Tensor | None) -> list[tuple[int, Tensor, Tensor]]:
        """(task, leaf, gradient), times `own` [m] (None: 1)."""
        flat = self.gradients.flat
        if own is not None:
            flat = flat * self.among(own).to(flat.dtype).unsqueeze(1)
        return list(zip(self.tasks, self.leaves, self.gradients.shaped(flat).unbind(), strict=True))

    def _of_all(self, values: Tensor) -> bool:
        return self.tasks == tuple(range(values.shape[0]))


def group_leaves(pairs: Pairs) -> list[LeafGroup] | None:
    """The gradients at leaves by shape; None where one is sparse."""
    alike: dict[tuple[torch.Size, torch.dtype], list[tuple[int, Tensor, Tensor]]] = {}
    for task, own in enumerate(pairs):
        for leaf, gradient in own:
            if gradient.is_sparse:
                return None
            alike.setdefault((gradient.shape, gradient.dtype), []).append((task, leaf, gradient))
    groups = []
    for members in alike.values():
        tasks, leaves, gradients = zip(*members, strict=True)
        groups.append(LeafGroup(list(leaves), tasks, Stacked.of(gradients)))
    return groups


@dataclass
class BatchedHeads:
    """The gradients of all tasks at the tensor z where they meet the trunk, and at their own leaves."""

    representation: Representation
    at_z: AtRepresentation
    groups: list[LeafGroup]
    """The leaves whose gradients `at_z` does not know."""
    there: tuple[bool, ...]
    """Whether a loss was given for the task."""
    trunk_passed: bool = False
    """Whether the gradients at z have reached the shared parameters already."""

    def magnitudes(self) -> Tensor:
        """[m] fp32; not finite where a gradient of the task is not."""
        total = self.at_z.magnitudes()
        for group in self.groups:
            total = group.added_to(total)
        return total

    def zero_unless(self, ok: Tensor) -> None:
        """Set everything of the tasks that are not `ok` [m] to zero."""
        self.at_z.zero_unless(ok)
        for group in self.groups:
            group.gradients.zero_unless(group.among(ok))

    def rows(self) -> tuple[Tensor, ...]:
        """The gradients at z as one [m, n] matrix."""
        rows = self.at_z.tensors.flatten(1)
        return (rows if rows.dtype == torch.float64 else rows.float(),)

    @cached_property
    def _one_by_one(self) -> Sequence[Tensor]:
        return self.at_z.one_by_one()

    def samples(self, task: int) -> list[tuple[Tensor, Tensor]]:
        """The values of z and one task's gradient there."""
        return [(self.representation.values, self._one_by_one[task].float())] if self.there[task] else []

    def samples_of_all(self, masks: Sequence[Tensor | None]) -> Samples:
        """The values of z and all gradients there."""
        return Samples(self.representation.values, self.at_z, masks, self.there)

    def without_representation(self) -> None:
        """Drop the gradient at z from what `weighted_sum` returns: the trunk has been passed."""
        self.trunk_passed = True

    def own(self) -> Pairs:
        """Per task: (leaf, gradient) for the leaves outside `shared`."""
        pairs: Pairs = [[] for _ in self.there]
        found = [*self.at_z.own_gradients(), *(one for group in self.groups for one in group.weighted(None))]
        for task, leaf, gradient in found:
            pairs[task].append((leaf, gradient))
        return pairs

    def _leaf_gradients(self, own: Tensor | None) -> list[tuple[int, Tensor, Tensor]]:
        return [*self.at_z.leaf_gradients(own), *(found for group in self.groups for found in group.weighted(own))]

    def weighted_sum(self, weights: Tensor, own: Tensor | None, gates: Gates | None) -> list[Contribution]:
        """The combined gradient: `weights` (or `gates`) at z, `own` (None: 1) at leaves."""
        if gates is not None:
            return self.per_task().weighted_sum(weights, own, gates)
        parts: list[Contribution] = [(leaf, gradient) for _, leaf, gradient in self._leaf_gradients(own)]
        if not self.trunk_passed:
            parts.append((self.representation, self.at_z.combined(weights)))
        return parts

    def per_task(self) -> PerTask:
        """The same as a list for each task."""
        pairs = zip(self._one_by_one, self.there, strict=True)
        at_z = [[(self.representation, gradient)] if there else [] for gradient, there in pairs]
        return PerTask(self.representation.stored.device, at_z, self.own())

    def statistics(self) -> "BatchedHeads":
        """What rules look at, without the autograd graph."""
        return BatchedHeads(self.representation.without_graph(), self.at_z.statistics(), [], self.there)


def memory_order(tensor: Tensor) -> tuple[int, ...]:
    """Its dimensions from the outermost to the innermost in memory."""
    strides = tensor.stride()
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))


def _usual(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))
