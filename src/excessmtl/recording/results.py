"""The tensors a recording results in: it overwrites them, and one copy per type keeps them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from excessmtl.gradients.rows import memory_order

_Place = tuple[int, torch.Size, tuple[int, ...], int]
"""Of a tensor: which of all it is, its shape, its strides, and where it begins."""


class Results:
    """These tensors side by side; making one is part of the recording."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._groups: list[tuple[Tensor, list[_Place]]] = []
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            # Large ones first: those that matter then begin where memory is read fastest.
            alike = [index for index in range(len(tensors)) if tensors[index].dtype == dtype]
            alike.sort(key=lambda index: -tensors[index].numel())
            kept = [_dense(tensors[index]) for index in alike]
            places, start = [], 0
            for index, tensor in zip(alike, kept, strict=True):
                places.append((index, tensor.shape, tensor.stride(), start))
                start += tensor.numel()
            flats = [tensor.permute(memory_order(tensor)).view(-1) for tensor in kept]
            self._groups.append((torch.cat(flats), places))

    def copies(self) -> list[Tensor]:
        """What is there now, in memory of its own."""
        copies: dict[int, Tensor] = {}
        for results, places in self._groups:
            flat = results.clone()
            copies.update({index: flat.as_strided(shape, strides, start) for index, shape, strides, start in places})
        return [copies[index] for index in range(len(copies))]


def _dense(tensor: Tensor) -> Tensor:
    """Without gaps in memory; channels last stays channels last."""
    return tensor if tensor.permute(memory_order(tensor)).is_contiguous() else tensor.contiguous()
