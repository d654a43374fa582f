"""The tensors a recording results in: it overwrites them, and one copy per type keeps them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from excessmtl.gradients.rows import memory_order

_Place = tuple[int, torch.Size, tuple[int, ...], int]
"""Of a tensor: which of all it is, its shape, its strides, and where it begins."""


class Results:
    """These tensors, those of one group and type side by side; making one is part of the recording.

    Copies of a group share memory: whoever keeps one of them keeps them all.
    """

    def __init__(self, *groups: Sequence[Tensor]) -> None:
        self._count = 0
        self._by_type: dict[torch.dtype, list[tuple[Tensor, list[_Place]]]] = {}
        for tensors in groups:
            for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
                alike = {self._count + i: _dense(one) for i, one in enumerate(tensors) if one.dtype == dtype}
                self._by_type.setdefault(dtype, []).append(_side_by_side(alike))
            self._count += len(tensors)

    def copies(self) -> list[Tensor]:
        """What is there now, group after group, in memory of its own."""
        copies = [_NOTHING] * self._count
        for groups in self._by_type.values():
            flats = [torch.empty_like(results) for results, _ in groups]
            torch._foreach_copy_(flats, [results for results, _ in groups])  # one kernel
            for flat, (_, places) in zip(flats, groups, strict=True):
                for index, shape, strides, start in places:
                    copies[index] = flat.as_strided(shape, strides, start)
        return copies


def _side_by_side(tensors: Mapping[int, Tensor]) -> tuple[Tensor, list[_Place]]:
    # Large ones first: those that matter then begin where memory is read fastest.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].numel())
    places, start = [], 0
    for index, tensor in ordered:
        places.append((index, tensor.shape, tensor.stride(), start))
        start += tensor.numel()
    flats = [tensor.permute(memory_order(tensor)).view(-1) for _, tensor in ordered]
    return torch.cat(flats) if len(flats) > 1 else flats[0], places


def _dense(tensor: Tensor) -> Tensor:
    """Without gaps in memory; channels last stays channels last."""
    return tensor if tensor.permute(memory_order(tensor)).is_contiguous() else tensor.contiguous()


_NOTHING = torch.empty(0)
