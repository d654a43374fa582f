"""The gradients of tasks at one tensor z of the representation: dense here, as factors in `factors.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.factors import Factors
from excessmtl.gradients.stacked import Stacked, memory_order
from excessmtl.graph.representation import Representation


@dataclass(frozen=True)
class Rows(Stacked):
    """Dense gradients of k tasks, one after the other in memory."""

    representation: Representation
    tasks: tuple[int, ...]
    """Whose gradients these are."""

    @property
    def stored(self) -> list[Tensor]:
        """The tensors it is made of, apart from z: a CUDA graph replaces them by others."""
        return [self.flat]

    @property
    def layout(self) -> Any:
        """Hashable; equal for what is computed by the same operations on tensors of the same shapes."""
        return self.tasks, self.shape, self.order

    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "Rows":
        """The same made of other tensors."""
        return replace(self, flat=stored[0], representation=self.representation.with_values(z))

    def gated_sum(self, gates: Mapping[int, Tensor]) -> Tensor:
        """The sum of some of the gradients, by their places, each times a tensor of its own."""
        return torch.stack([self.tensors[place] * gate.to(self.flat.dtype) for place, gate in gates.items()]).sum(0)

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """For gradients [k, samples, features], times the matrix, and z [samples, width], in fp32.

        Both are sums over samples: [k, width, columns] of z' g, and [k, width] of z^2 |g|^2.
        """
        projected = self.tensors.float() @ matrix
        return z.T @ projected, projected.square().sum(-1) @ z.square()

    def leaf_gradients(self, own: Tensor | None) -> list[tuple[int, Tensor, Tensor]]:
        """None: no gradient of a leaf follows from dense gradients at z."""
        return []

    def own_gradients(self) -> list[tuple[int, Tensor, Tensor]]:
        """None."""
        return []

    def without_graph(self) -> "Rows":
        """The same gradients, which are copies already, without the autograd graph."""
        return replace(self, representation=self.representation.without_graph())


AtRepresentation = Rows | Factors


class RowsInTheMaking:
    """Takes gradients as they arrive at z: each is copied at once, before autograd needs its memory."""

    def __init__(self, representation: Representation, tasks: Sequence[int]) -> None:
        z = representation.stored
        flat = z.new_empty(len(tasks), z.numel())
        self._rows = Rows(flat, z.shape, memory_order(z), representation, tuple(tasks))
        self._places = {task: place for place, task in enumerate(tasks)}
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
        for task, place in self._places.items():
            if task not in self._arrived:
                self._rows.flat[place].zero_()
        return self._rows

    def arrived(self) -> Rows:
        """The rows of the tasks for which something arrived, and no others."""
        if len(self._arrived) == len(self._places):
            return self._rows
        tasks = tuple(task for task in self._places if task in self._arrived)
        return replace(self._rows, flat=self._rows.flat[[self._places[task] for task in tasks]], tasks=tasks)
