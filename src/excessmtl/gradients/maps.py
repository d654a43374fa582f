"""Gradients of all tasks at one large tensor, each left where autograd put it.

Small gradients are copied side by side (`rows.py`), so that a few operations serve all tasks. Large ones cost what
reading them costs: here they are not copied, not overwritten (somebody else may hold them), and read seldom.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from excessmtl.gradients.rows import dense, index_of, kept_where, memory_order
from excessmtl.gradients.weighted_sum import weighted_sum

_LARGE = 2**22
"""So many entries are many: with fewer, launching an operation per task takes longer than copying."""


def large(z: Tensor) -> bool:
    """Whether the gradients at this tensor are better left where they are."""
    return z.numel() >= _LARGE and z.is_floating_point() and z.permute(memory_order(z)).is_contiguous()


@dataclass
class Maps:
    """m of them; zero where nothing arrived."""

    z: Tensor
    """Where they are gradients: they have its type and its layout in memory."""
    ok: Tensor
    """[m] bool: which of them count. The others are zero, whatever stands in their memory."""
    arrived: dict[int, Tensor] = field(default_factory=dict)
    """By task."""

    @classmethod
    def at(cls, z: Tensor, tasks: int) -> "Maps":
        """To be filled by `add`."""
        return cls(z, torch.ones(tasks, dtype=torch.bool, device=z.device))

    def add(self, task: int, gradient: Tensor) -> None:
        """Take over what arrived, or add it to what has arrived before."""
        if (before := self.arrived.get(task)) is not None:
            self.arrived[task] = before + gradient
        elif self._can_stay(gradient):
            self.arrived[task] = gradient
        else:
            self.arrived[task] = torch.empty_like(self.z).copy_(dense(gradient))

    def _can_stay(self, gradient: Tensor) -> bool:
        """Not what is laid out otherwise, nor a part of something larger, all of which would stay in memory."""
        if gradient.is_sparse or gradient.dtype != self.z.dtype or gradient.stride() != self.z.stride():
            return False
        return gradient.untyped_storage().nbytes() == self.z.numel() * self.z.element_size()

    @property
    def kind(self) -> Hashable:
        """Beside what the gradients look like: equal for what is computed alike."""
        return tuple(self.arrived)

    @property
    def factors(self) -> list[Tensor]:
        """The tensors it is made of, but for z."""
        return list(self.arrived.values())

    def on(self, z: Tensor, factors: Iterator[Tensor]) -> "Maps":
        """The same with another z and the next of other `factors`."""
        return replace(Maps.at(z, len(self.ok)), arrived={task: next(factors) for task in self.arrived})

    def joined(self) -> "Maps":
        """As it is; see `AtOutputs`."""
        return self

    def keep(self, ok: Tensor) -> None:
        """Let only those count that are `ok` [m]."""
        self.ok = ok

    def reduced(self, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """[m, ...]: what `reduce` makes of every gradient; zero where they do not count."""
        return self._that_count(self._reduced(reduce))

    def sums(self) -> Tensor:
        """[m]; finite if and only if every entry is (or the entries are beyond any use)."""
        return self._sums.reshape(len(self.ok), -1).sum(1)

    @property
    def over_positions(self) -> Tensor:
        """[m, samples, features] of maps [samples, features, ...]: sums over the other dimensions, in fp32."""
        return self._that_count(self._sums)

    @cached_property
    def _sums(self) -> Tensor:
        """One pass that serves both: whether all is finite, and what the maps add up to."""
        inner = tuple(range(2, self.z.ndim)) if self.z.ndim > 3 else tuple(range(self.z.ndim))
        return self._reduced(lambda gradient: gradient.sum(inner, dtype=torch.float32))

    def _reduced(self, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        found = {task: reduce(gradient) for task, gradient in self.arrived.items()}
        if len(found) < len(self.ok):
            like = next(iter(found.values()), None)
            zero = reduce(torch.zeros_like(self.z)) if like is None else torch.zeros_like(like)
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

    def copies(self) -> list[Tensor]:
        """The gradients one by one: from here on in memory of their own, where those that do not count are zero."""
        for task, gradient in self.arrived.items():
            self.arrived[task] = kept_where(self.ok[task], gradient)
        zero = self.z.new_zeros(()).expand_as(self.z)
        return [self.arrived.get(task, zero) for task in range(len(self.ok))]

    @property
    def tensors(self) -> Tensor:
        """[m, ...]"""
        return torch.stack(self.copies())

    def times(self, matrix: Tensor) -> Tensor:
        """[m, ..., columns]: every gradient times `matrix`, in fp32."""
        return self.reduced(lambda gradient: gradient.float() @ matrix)
