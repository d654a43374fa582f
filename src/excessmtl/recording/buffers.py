"""Device memory that a recording reads its inputs from, and copies of what it results in."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from excessmtl.torch_private import copy_all

_COMPARABLE = (type(None), bool, int, float, str, bytes)
"""What, beside tensors, can be compared with what was recorded."""


def obstacle(leaves: Sequence[Any]) -> str | None:
    """Why a step with these arguments cannot be recorded; None where it can."""
    for leaf in leaves:
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            return "the batch has a tensor that requires a gradient"
        if isinstance(leaf, Tensor) and leaf.layout is not torch.strided:
            return f"the batch has a tensor of layout {leaf.layout}"
        if not isinstance(leaf, (Tensor, *_COMPARABLE)):
            kind = type(leaf).__name__
            return f"the batch has a {kind}; tensors, numbers and strings in tuples, lists and dicts can be recorded"
    return None


def signature(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Equal for inputs that one recording serves: shapes and types of tensors, everything else as it is."""
    parts = [(x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else (type(x), x) for x in leaves]
    return tuple(parts)


def copied(leaves: Sequence[Any], device: torch.device) -> list[Any]:
    """All tensors in memory of their own on the device, in the same layout where they have no gaps."""
    copies = [torch.empty_like(leaf, device=device) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    fill(copies, leaves)
    return copies


def fill(targets: Sequence[Any], sources: Sequence[Any]) -> None:
    """Copy tensors to where others are: one kernel for each type. Nothing of how they were computed goes with them."""
    by_type: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        if isinstance(target, Tensor):
            pair = by_type.setdefault(target.dtype, ([], []))
            pair[0].append(target)
            pair[1].append(source)
    with torch.no_grad():
        for pair in by_type.values():
            copy_all(*pair, non_blocking=True)
