"""The tensors a recording results in: it overwrites them, and one copy per type keeps them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from excessmtl.gradients.at_representation import memory_order
from excessmtl.torch_private import copy_all

_Place = tuple[int, torch.Size, tuple[int, ...], int]
"""Of a tensor: which of all it is, its shape, its strides, and where it begins."""
_NOTHING = torch.empty(0)
_ALIGNED = 512
"""Bytes. Every tensor begins where one of its own would: libraries choose their kernels by that, and these round."""


class Results:
    """These tensors side by side; making one is part of the recording."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._count = len(tensors)
        self._groups: list[tuple[Tensor, list[_Place]]] = []
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = {index: _dense(tensor) for index, tensor in enumerate(tensors) if tensor.dtype == dtype}
            step, places, end = _ALIGNED // dtype.itemsize, [], 0
            for index, tensor in alike.items():
                places.append((index, tensor.shape, tensor.stride(), end))
                end += -(-tensor.numel() // step) * step
            flat = next(iter(alike.values())).new_empty(end)
            views = [flat.as_strided(shape, strides, start) for _, shape, strides, start in places]
            copy_all(views, list(alike.values()))
            self._groups.append((flat, places))

    def copies(self) -> list[Tensor]:
        """What is there now, in memory of its own."""
        copies = [_NOTHING] * self._count
        for results, places in self._groups:
            flat = results.clone()
            for index, shape, strides, start in places:
                copies[index] = flat.as_strided(shape, strides, start)
        return copies


def _dense(tensor: Tensor) -> Tensor:
    """Without gaps in memory; channels last stays channels last."""
    return tensor if tensor.permute(memory_order(tensor)).is_contiguous() else tensor.contiguous()
