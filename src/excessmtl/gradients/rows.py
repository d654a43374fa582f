"""Gradients of all tasks as rows of matrices."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import torch
from torch import Tensor

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
        order, count = _order(tensors[0]), len(tensors)
        moved = tensors if _usual(order) else [tensor.permute(order) for tensor in tensors]
        return cls(torch.stack([*moved]).view(count, -1), tensors[0].shape, order, set(range(count)))

    @classmethod
    def like(cls, tensor: Tensor, count: int) -> "Rows":
        """Rows to be filled by `add`, then `finish`."""
        return cls(tensor.new_empty(count, tensor.numel()), tensor.shape, _order(tensor))

    def add(self, row: int, tensor: Tensor) -> None:
        """Add to a row; what is added first takes the place of what was in the memory."""
        place = self.tensors[row]
        if row not in self.filled:
            self.filled.add(row)
            place.copy_(tensor)
        else:
            place.add_(tensor)

    def finish(self) -> None:
        """Zero where nothing was added."""
        for row in range(len(self.flat)):
            if row not in self.filled:
                self.flat[row].zero_()

    @cached_property
    def tensors(self) -> Tensor:
        """[k, ...]: the rows in their original shape."""
        return self.shaped(self.flat)

    def shaped(self, rows: Tensor) -> Tensor:
        """[n] or [k, n] in the order of memory -> the original shape."""
        lead = rows.ndim - 1
        if _usual(self.order):
            return rows.reshape(*rows.shape[:lead], *self.shape)
        sizes = [self.shape[dim] for dim in self.order]
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return rows.reshape(*rows.shape[:lead], *sizes).permute(*range(lead), *(lead + place for place in back))

    def sums(self) -> Tensor:
        """[k]; finite if and only if every entry is (or the entries are beyond any use)."""
        return self.flat.sum(1, dtype=torch.float32)

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
    """One [m, n] matrix (fp32 or wider) per parameter, filled task by task.

    A gradient is copied as soon as it is there, so that one task's gradients are alive beside the matrices, not all.
    """

    def __init__(self, parameters: Sequence[Tensor], tasks: int) -> None:
        self.rows = [p.new_empty(tasks, p.numel(), dtype=_wide(p.dtype), requires_grad=False) for p in parameters]
        shaped = [rows.view(tasks, *p.shape) for rows, p in zip(self.rows, parameters, strict=True)]
        self._places = list(zip(*(rows.unbind() for rows in shaped), strict=True)) or [()] * tasks

    def fill(self, task: int, gradients: Sequence[Tensor | None]) -> None:
        """Zero where there is no gradient."""
        found = [(place, g.to_dense()) for place, g in zip(self._places[task], gradients, strict=True) if g is not None]
        if found:
            torch._foreach_copy_([place for place, _ in found], [gradient for _, gradient in found])
        for place, gradient in zip(self._places[task], gradients, strict=True):
            if gradient is None:
                place.zero_()

    def finite(self, like: Tensor) -> Tensor:
        """[m] bool: whether everything a task filled in is."""
        sums = [rows.sum(1, dtype=torch.float32) for rows in self.rows]
        return is_finite(torch.stack(sums).sum(0)) if sums else torch.ones_like(like, dtype=torch.bool)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


def keep_where(ok: Tensor, values: Tensor) -> None:
    """In place: zero where not `ok`, whatever was there."""
    # The bits as whole numbers times 0 or 1: a product of floats would keep NaN, and selecting takes ten times as long
    # on a CPU.
    values.view(_BITS[values.element_size()]).mul_(ok)


def is_finite(values: Tensor) -> Tensor:
    """As `isfinite`, in two operations instead of four."""
    return (values - values) == 0


@lru_cache(maxsize=256)
def index_of(places: tuple[int, ...], device: torch.device) -> Tensor:
    """To pick these places from a tensor; kept, because a CUDA graph cannot record a copy from the host."""
    return torch.tensor(places, device="cpu").to(device)


def _usual(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))


def _order(tensor: Tensor) -> tuple[int, ...]:
    strides = tensor.stride()
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
