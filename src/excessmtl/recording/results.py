"""The tensors a recording results in: it overwrites them, and one copy per type keeps them."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Results:
    """These tensors side by side; making one is part of the recording."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        by_type: dict[torch.dtype, list[int]] = {}
        for index, tensor in enumerate(tensors):
            by_type.setdefault(tensor.dtype, []).append(index)
        self._shapes = [tensor.shape for tensor in tensors]
        self._groups = []
        for indices in by_type.values():
            # Large ones first: those that matter then begin where memory is read fastest.
            indices.sort(key=lambda index: -tensors[index].numel())
            flat = torch.cat([tensors[index].reshape(-1) for index in indices])
            self._groups.append((indices, [tensors[index].numel() for index in indices], flat))

    def copies(self) -> list[Tensor]:
        """What is there now, in memory of its own."""
        copies: dict[int, Tensor] = {}
        for indices, sizes, flat in self._groups:
            parts = flat.clone().split_with_sizes(sizes)
            copies.update((index, part.view(self._shapes[index])) for index, part in zip(indices, parts, strict=True))
        return [copies[index] for index in range(len(copies))]
