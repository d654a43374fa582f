"""The gradients of tasks at one tensor z of the representation: dense here, as factors in `factors.py`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.stacked import Stacked
from excessmtl.graph.representation import Representation


class AtRepresentation(ABC):
    """The gradients of k tasks at z, and at leaves whose gradients follow from those at z.

    `stored` are the tensors it is made of. A CUDA graph replaces them by others through `with_stored`.
    """

    representation: Representation
    tasks: tuple[int, ...]
    """Whose gradients these are."""

    @property
    @abstractmethod
    def stored(self) -> list[Tensor]:
        """The tensors it is made of, apart from z."""

    @property
    @abstractmethod
    def layout(self) -> Any:
        """Hashable; equal for what is computed by the same operations on tensors of the same shapes."""

    @abstractmethod
    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "AtRepresentation":
        """The same made of other tensors."""

    @property
    @abstractmethod
    def tensors(self) -> Tensor:
        """[k, ...]: the gradients."""

    @abstractmethod
    def magnitudes(self) -> Tensor:
        """[k] fp32; not finite where a gradient is not."""

    @abstractmethod
    def zero_unless(self, ok: Tensor) -> None:
        """Set the gradients of the tasks that are not `ok` [k] to zero."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of the gradients times `weights` [k]."""

    def gated_sum(self, gates: Mapping[int, Tensor]) -> Tensor:
        """The sum of some of the gradients, by their places, each times a tensor of its own."""
        tensors = self.tensors
        return torch.stack([tensors[place] * gate.to(tensors.dtype) for place, gate in gates.items()]).sum(0)

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """For gradients [k, samples, features], times the matrix, and z [samples, width], in fp32.

        Both are sums over samples: [k, width, columns] of z' g, and [k, width] of z^2 |g|^2.
        """
        projected = self.tensors.float() @ matrix
        return z.T @ projected, projected.square().sum(-1) @ z.square()

    def leaf_gradients(self, own: Tensor | None) -> list[tuple[int, Tensor, Tensor]]:
        """(task, leaf, gradient) for leaves whose gradients follow from those at z, times `own` [k] (None: 1)."""
        return []

    def own_gradients(self) -> list[tuple[int, Tensor, Tensor]]:
        """(task, leaf, gradient) for these leaves, where several tasks may share one."""
        return self.leaf_gradients(None)

    @abstractmethod
    def without_graph(self) -> "AtRepresentation":
        """What rules look at, without the autograd graph."""


@dataclass(frozen=True)
class Rows(AtRepresentation):
    """Dense gradients, one after the other in memory."""

    representation: Representation
    tasks: tuple[int, ...]
    rows: Stacked

    @property
    def stored(self) -> list[Tensor]:
        """The one tensor."""
        return [self.rows.flat]

    @property
    def layout(self) -> Any:
        """Tasks, shape and order in memory."""
        return self.tasks, self.rows.shape, self.rows.order

    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "Rows":
        """The same with another tensor."""
        rows = replace(self.rows, flat=stored[0])
        return Rows(self.representation.with_values(z), self.tasks, rows)

    @property
    def tensors(self) -> Tensor:
        """[k, ...]"""
        return self.rows.tensors

    def magnitudes(self) -> Tensor:
        """[k] norms."""
        return self.rows.magnitudes()

    def zero_unless(self, ok: Tensor) -> None:
        """In place."""
        self.rows.zero_unless(ok)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of the gradients times `weights` [k]."""
        return self.rows.weighted_sum(weights)

    def without_graph(self) -> "Rows":
        """The same gradients, which are copies already."""
        return replace(self, representation=self.representation.without_graph())


class RowsInTheMaking:
    """Takes gradients as they arrive at z: each is copied at once, before autograd needs its memory."""

    def __init__(self, representation: Representation, tasks: Sequence[int]) -> None:
        self._representation, self._tasks = representation, tuple(tasks)
        self._places = {task: place for place, task in enumerate(tasks)}
        self._rows = Stacked.empty_like(representation.stored, len(self._tasks))
        self._arrived: set[int] = set()

    def add(self, task: int, gradient: Tensor) -> None:
        """Copy a task's gradient, or add it to what has arrived for the task before."""
        row = self._rows.tensors[self._places[task]]
        if task in self._arrived:
            row.add_(gradient)
        else:
            self._arrived.add(task)
            row.copy_(gradient)

    def finished(self) -> Rows:
        """All rows; zero where nothing arrived."""
        for task in self._tasks if len(self._arrived) < len(self._tasks) else ():
            if task not in self._arrived:
                self._rows.flat[self._places[task]].zero_()
        return Rows(self._representation, self._tasks, self._rows)

    def arrived(self) -> Rows:
        """The rows of the tasks for which something arrived, and no others."""
        tasks = tuple(task for task in self._tasks if task in self._arrived)
        if len(tasks) == len(self._tasks):
            return self.finished()
        rows = replace(self._rows, flat=self._rows.flat[[self._places[task] for task in tasks]])
        return Rows(self._representation, tasks, rows)
