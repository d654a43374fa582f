"""Gradients at a large z, each left where autograd put it.

Applies to maps of 4 million entries or more. Small gradients are copied into one tensor, so that few operations serve
all tasks; large ones cost what reading them costs, so they are not copied, and read as seldom as possible.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from excessmtl.engine.tensors import index_of, magnitude, zeroed_unless
from excessmtl.fast.batched import AtRepresentation, memory_order
from excessmtl.fast.kernels import kernels_for


def is_large(z: Tensor, entries: int) -> bool:
    """Whether z has so many entries, and memory without gaps."""
    return z.numel() >= entries and z.is_floating_point() and z.permute(memory_order(z)).is_contiguous()


@dataclass
class LargeMaps(AtRepresentation):
    """The gradients of m tasks; zero where nothing arrived."""

    z: Tensor
    arrived: dict[int, Tensor]
    """By task, with z's type and layout in memory. Not overwritten: somebody else may hold them."""
    ok: Tensor
    """[m] bool: which of them count. The others are zero, whatever is in their memory."""
    large = True

    @classmethod
    def empty_like(cls, z: Tensor, tasks: int) -> "LargeMaps":
        """To be filled by `add`."""
        return cls(z, {}, torch.ones(tasks, dtype=torch.bool, device=z.device))

    def add(self, task: int, gradient: Tensor) -> None:
        """Take over a gradient that is laid out like z, copy any other, or add it to what the task has already."""
        if (before := self.arrived.get(task)) is not None:
            self.arrived[task] = before + gradient
        elif _can_stay(gradient, self.z):
            self.arrived[task] = gradient
        else:
            self.arrived[task] = torch.empty_like(self.z).copy_(gradient)

    def finish(self) -> None:
        """Nothing more arrives."""

    @property
    def stored(self) -> list[Tensor]:
        """The gradients that arrived."""
        return list(self.arrived.values())

    @property
    def layout(self) -> Any:
        """The tasks whose gradients arrived."""
        return len(self.ok), tuple(self.arrived)

    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "LargeMaps":
        """The same with other gradients."""
        return replace(LargeMaps.empty_like(z, len(self.ok)), arrived=dict(zip(self.arrived, stored, strict=True)))

    def magnitudes(self) -> Tensor:
        """[m] norms of the sums over positions; not finite where an entry is not."""
        return magnitude(self._sums.reshape(len(self.ok), -1), dim=1)

    def zero_unless(self, ok: Tensor) -> None:
        """Let only those count that are `ok` [m]."""
        self.ok = ok

    def each(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """[m, ...]: what the function makes of every gradient; zero where they do not count."""
        return self._that_count(self._each(function))

    def over_positions(self) -> Tensor:
        """[m, samples, features] of maps [samples, features, ...]: sums over the other dimensions, in fp32."""
        return self._that_count(self._sums)

    @cached_property
    def _sums(self) -> Tensor:
        """One pass over the memory that serves both: whether all is finite, and what the maps add up to."""
        inner = tuple(range(2, self.z.ndim)) if self.z.ndim > 3 else tuple(range(1, self.z.ndim))
        return self._each(lambda gradient: gradient.sum(inner, dtype=torch.float32))

    def _each(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        found = {task: function(gradient) for task, gradient in self.arrived.items()}
        if len(found) < len(self.ok):
            like = next(iter(found.values()), None)
            zero = function(torch.zeros_like(self.z)) if like is None else torch.zeros_like(like)
            found = {task: found.get(task, zero) for task in range(len(self.ok))}
        return torch.stack([found[task] for task in range(len(self.ok))])

    def _that_count(self, values: Tensor) -> Tensor:
        return torch.where(self.ok.view(-1, *(1 for _ in values.shape[1:])), values, 0)

    def combined(self, weights: Tensor) -> Tensor:
        """The weighted sum."""
        if not self.arrived:
            return torch.zeros_like(self.z)
        ok, tasks = self.ok, tuple(sorted(self.arrived))  # autograd comes to the last of them first
        if len(tasks) < len(ok):
            index = index_of(tasks, ok.device)
            ok, weights = ok[index], weights[index]
        return weighted_sum([self.arrived[task] for task in tasks], weights, ok)

    def one_by_one(self) -> Sequence[Tensor]:
        """The gradient of each task: from here on in memory of their own, zero where they do not count."""
        for task, gradient in self.arrived.items():
            self.arrived[task] = zeroed_unless(self.ok[task], gradient)
        zero = self.z.new_zeros(()).expand_as(self.z)
        return [self.arrived.get(task, zero) for task in range(len(self.ok))]

    @property
    def tensors(self) -> Tensor:
        """[m, ...]"""
        return torch.stack([*self.one_by_one()])

    def times(self, matrix: Tensor) -> Tensor:
        """[m, ..., columns]: every gradient times a matrix, in fp32."""
        return self.each(lambda gradient: gradient.float() @ matrix)

    def statistics(self) -> "LargeMaps":
        """In memory of its own: a head recorded as a CUDA graph would write its next gradient over this one."""
        self.one_by_one()
        return replace(self)


def _can_stay(gradient: Tensor, z: Tensor) -> bool:
    """Not what is laid out otherwise, nor a part of something larger, all of which would stay in memory."""
    if gradient.dtype != z.dtype or gradient.stride() != z.stride():
        return False
    return gradient.untyped_storage().nbytes() == z.numel() * z.element_size()


def weighted_sum(tensors: Sequence[Tensor], weights: Tensor, ok: Tensor) -> Tensor:
    """The sum of those that are `ok` [k], times `weights` [k]. All are laid out alike; zero times NaN would be NaN."""
    if (kernels := kernels_for(tensors[0])) is not None:
        found: Tensor = kernels.weighted_sum(tensors, weights, ok)
        return found
    dtype = tensors[0].dtype
    # A sum in half precision would lose a bit whenever the number of tasks grows fourfold.
    weights = weights.to(torch.promote_types(dtype, torch.float32))
    total = zeroed_unless(ok[0], tensors[0]).to(weights.dtype).mul_(weights[0])
    for place in range(1, len(tensors)):
        total.addcmul_(zeroed_unless(ok[place], tensors[place]), weights[place])
    return total.to(dtype)
