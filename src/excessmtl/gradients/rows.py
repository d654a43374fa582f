"""Gradients of all tasks as rows of matrices."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from excessmtl.constants import made_once

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Rows:
    """k of them. Memory is laid out as in the tensors they are made from: channels last stays channels last."""

    flat: Tensor
    """[k, n], in the order of memory."""
    shape: torch.Size
    order: tuple[int, ...]
    """Dimensions from the outermost to the innermost in memory."""
    filled: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "Rows":
        """Copies of these."""
        order, count = memory_order(tensors[0]), len(tensors)
        moved = tensors if _usual(order) else [tensor.permute(order) for tensor in tensors]
        return cls(torch.stack([*moved]).view(count, -1), tensors[0].shape, order, set(range(count)))

    @classmethod
    def like(cls, tensor: Tensor, count: int) -> "Rows":
        """Rows to be filled by `add`, then `finish`."""
        return cls(tensor.new_empty(count, tensor.numel()), tensor.shape, memory_order(tensor))

    def add(self, row: int, tensor: Tensor) -> None:
        """Add to a row; what is added first takes the place of what was in the memory."""
        place = self.tensors[row]
        if row not in self.filled:
            self.filled.add(row)
            place.copy_(dense(tensor))
        else:
            place.add_(tensor)

    def finish(self) -> None:
        """Zero where nothing was added."""
        for row in range(len(self.flat)):
            if row not in self.filled:
                self.flat[row].zero_()

    @property
    def kind(self) -> Hashable:
        """Beside what the rows look like: equal for what is computed alike."""
        return self.shape, self.order

    @property
    def factors(self) -> list[Tensor]:
        """The tensors it is made of."""
        return [self.flat]

    def on(self, z: Tensor, factors: Iterator[Tensor]) -> "Rows":
        """The same with the next of other `factors`."""
        return Rows(next(factors), self.shape, self.order, self.filled)

    def joined(self) -> "Rows":
        """As it is; see `AtOutputs`."""
        return self

    @cached_property
    def tensors(self) -> Tensor:
        """[k, ...]: the rows in their original shape."""
        return self.shaped(self.flat)

    def shaped(self, rows: Tensor) -> Tensor:
        """[n] or [k, n] in the order of memory -> the original shape."""
        lead = rows.ndim - 1
        if _usual(self.order):
            return rows.reshape((*rows.shape[:lead], *self.shape))
        sizes = [self.shape[dim] for dim in self.order]
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return rows.reshape(*rows.shape[:lead], *sizes).permute(*range(lead), *(lead + place for place in back))

    def sums(self) -> Tensor:
        """[k]; finite if and only if every entry is (or the entries are beyond any use)."""
        return as_real(self.flat).flatten(1).sum(1, dtype=torch.float32)

    def keep(self, ok: Tensor) -> None:
        """Set the rows to zero where not `ok` [k]."""
        keep_where(ok.unsqueeze(1), self.flat)

    def combined(self, weights: Tensor) -> Tensor:
        """The weighted sum, in the original shape."""
        return self.shaped(weights.to(self.flat.dtype) @ self.flat)

    def times(self, matrix: Tensor) -> Tensor:
        """[k, ..., columns]: every tensor times `matrix`, in fp32."""
        return self.tensors.float() @ matrix


class ParameterRows:
    """The gradients of all tasks at all parameters, side by side in one [m, n] matrix (fp32 or wider).

    A gradient is copied as soon as it is there, so that those of one walk are alive beside the matrix, not all. What
    follows (checks, masks, weights, products) is an operation on one matrix, however many parameters there are.
    """

    def __init__(self, parameters: Sequence[Tensor], tasks: int) -> None:
        self.flat: Tensor | None = None
        self._sizes = [parameter.numel() for parameter in parameters]
        if parameters:
            wide = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
            self.flat = parameters[0].new_empty(tasks, sum(self._sizes), dtype=wide, requires_grad=False)

    def take(self, tasks: Sequence[int], gradients: Sequence[Tensor | None]) -> None:
        """Copy the gradients [k, ...] of these tasks; zero where there is none."""
        first, end = tasks[0], tasks[-1] + 1
        if end - first == len(tasks):
            self._fill(slice(first, end), gradients)
            return
        for row, task in enumerate(tasks):
            self._fill(slice(task, task + 1), [None if gradient is None else gradient[row] for gradient in gradients])

    def nothing_of(self, task: int) -> None:
        """Zero for a task without gradients."""
        if self.flat is not None:
            self.flat[task].zero_()

    def _fill(self, tasks: slice, gradients: Sequence[Tensor | None]) -> None:
        if self.flat is None:
            return
        rows = self.flat[tasks]
        parts = [
            rows.new_zeros(1).expand(len(rows), size) if gradient is None else dense(gradient).reshape(len(rows), -1)
            for size, gradient in zip(self._sizes, gradients, strict=True)
        ]
        torch.cat(parts, dim=1, out=rows)

    def finite(self, like: Tensor) -> Tensor:
        """[m] bool: whether everything a task filled in is."""
        if self.flat is None:
            return torch.ones_like(like, dtype=torch.bool)
        return finite_rows(self.flat)


def dense(gradient: Tensor) -> Tensor:
    """Sparse gradients filled up with zeros; others as they are."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def as_real(values: Tensor) -> Tensor:
    """Complex numbers as pairs in a dimension more; others as they are."""
    return torch.view_as_real(values) if values.is_complex() else values


def keep_where(ok: Tensor, values: Tensor) -> None:
    """In place: zero where not `ok`, whatever was there."""
    if values.is_complex():
        values, ok = as_real(values), ok.unsqueeze(-1)
    # The bits as whole numbers times 0 or 1: a product of floats would keep NaN, and selecting takes ten times as long
    # on a CPU.
    values.view(_BITS[values.element_size()]).mul_(ok)


def kept_where(ok: Tensor, values: Tensor) -> Tensor:
    """The same in memory of its own, for real values."""
    return (values.view(_BITS[values.element_size()]) * ok).view(values.dtype)


def is_finite(values: Tensor) -> Tensor:
    """As `isfinite`, in two operations instead of four."""
    return (values - values) == 0


def finite_rows(matrix: Tensor) -> Tensor:
    """[k] bool: whether no entry of a row [k, n] is inf or NaN (or beyond any use)."""
    return is_finite(matrix.sum(1, dtype=torch.float32))


@made_once
def index_of(places: tuple[int, ...], device: torch.device) -> Tensor:
    """To pick these places from a tensor; kept, because a CUDA graph cannot record a copy from the host."""
    return torch.tensor(places, device="cpu").to(device)


def _usual(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))


def memory_order(tensor: Tensor) -> tuple[int, ...]:
    """Its dimensions from the outermost to the innermost."""
    strides = tensor.stride()
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
