"""One number per task from its gradient, which is then let go: for trunks too large to have a gradient per task."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from excessmtl.gradients.rows import ParameterRows, keep_where

Reduce = Callable[[slice, Tensor, Tensor], Tensor]
"""(tasks, their gradients [k, n], whether they are ok [k]) -> [k]. Gradients are zero where not ok."""


class ReducedRows:
    """Takes the place of the matrix of all gradients: a few rows at a time, gone as soon as they are reduced."""

    def __init__(self, parameters: Sequence[Tensor], reduce: Reduce, ok: Tensor) -> None:
        self.numbers = torch.zeros_like(ok, dtype=torch.float32)
        """[m]"""
        self.ok = ok.clone()
        """[m] bool: what was known before, and that the gradients are finite."""
        self._parameters, self._reduce = parameters, reduce

    def take(self, tasks: Sequence[int], gradients: Sequence[Tensor | None]) -> None:
        """Reduce the gradients [k, ...] of these tasks."""
        first, end = tasks[0], tasks[-1] + 1
        if end - first > len(tasks):  # tasks between them are missing
            for row, task in enumerate(tasks):
                self.take([task], [None if gradient is None else gradient[row : row + 1] for gradient in gradients])
            return
        span, rows = slice(first, end), ParameterRows(self._parameters, len(tasks))
        rows.take(range(len(tasks)), gradients)
        self.ok[span] &= rows.finite(self.numbers)
        if rows.flat is not None:
            keep_where(self.ok[span, None], rows.flat)
            self.numbers[span] = self._reduce(span, rows.flat.float(), self.ok[span])
