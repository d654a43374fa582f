"""One number per task from its gradient at the shared parameters, which is then dropped.

Applies to rules that need no more (`Rule.streams`), when the user asks for it or when there are many large gradients
that nothing else needs. The trunk then takes one more backward pass for the weighted sum.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from excessmtl.engine.per_task import ParameterRows
from excessmtl.engine.tensors import magnitude, usable, zero_unless

_Reduce = Callable[[slice, Tensor, Tensor], Tensor]
"""(tasks, their gradients [k, n], whether they are ok [k]) -> [k]"""


class ReducedRows:
    """Takes the place of the matrix of all gradients: a few rows at a time, dropped as soon as they are reduced."""

    def __init__(self, parameters: Sequence[Tensor], reduce: _Reduce, ok: Tensor) -> None:
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
        if rows.flat is not None:
            self.ok[span] &= usable(magnitude(rows.flat, dim=1))
            zero_unless(self.ok[span, None], rows.flat)
            self.numbers[span] = self._reduce(span, rows.flat.float(), self.ok[span])
