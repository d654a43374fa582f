"""The arguments of a step: what they look like, and the device memory from which a recording reads them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from excessmtl.torch_private import TreeSpec, copy_all, tree_flatten, tree_map, tree_unflatten

_PLAIN = (type(None), bool, int, float, str, bytes)
"""What, beside tensors, can be compared with what was recorded."""


class Arguments:
    """The arguments of one call, tensors in nested tuples, lists and dicts among them."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.leaves, self.structure = tree_flatten(arguments)

    @property
    def obstacle(self) -> str | None:
        """Why a step with such arguments cannot be recorded, if it cannot."""
        for leaf in self.leaves:
            if isinstance(leaf, Tensor):
                if leaf.requires_grad:
                    return "the batch has a tensor that requires a gradient"
                if leaf.layout is not torch.strided:
                    return f"the batch has a tensor of layout {leaf.layout}"
            elif not isinstance(leaf, _PLAIN):
                kind = type(leaf).__name__
                return (
                    f"the batch has a {kind}; tensors, numbers and strings in tuples, lists and dicts can be recorded"
                )
        return None

    @property
    def look(self) -> tuple[TreeSpec, tuple[Any, ...]]:
        """Equal for arguments that one recording serves: shapes and types of tensors, everything else as it is."""
        return self.structure, tuple(
            (leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, Tensor) else (type(leaf), leaf)
            for leaf in self.leaves
        )


def moved_to_device(arguments: tuple[Any, ...], device: torch.device) -> tuple[Any, ...]:
    """The same arguments with all tensors on the device."""
    ahead = device.type == "cuda"  # its stream keeps the order; on a host nothing waits for a copy that comes later

    def move(leaf: Any) -> Any:
        return leaf.to(device, non_blocking=ahead) if isinstance(leaf, Tensor) else leaf

    found: tuple[Any, ...] = tree_map(move, arguments)
    return found


class StaticInputs:
    """Tensors of a recording's own, from which it reads every batch."""

    def __init__(self, like: Arguments, device: torch.device) -> None:
        leaves = [torch.empty_like(leaf, device=device) if isinstance(leaf, Tensor) else leaf for leaf in like.leaves]
        self.arguments: tuple[Any, ...] = tree_unflatten(leaves, like.structure)
        by_type: dict[torch.dtype, list[int]] = {}
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                by_type.setdefault(leaf.dtype, []).append(index)
        # Copies between tensors of one type are one kernel.
        self._groups = [(indices, [leaves[index] for index in indices]) for indices in by_type.values()]
        self.fill(like.leaves)

    def fill(self, leaves: Sequence[Any]) -> None:
        """Copy a batch into them; nothing of how it was computed goes with it."""
        with torch.no_grad():
            for indices, targets in self._groups:
                copy_all(targets, [leaves[index] for index in indices], non_blocking=True)
