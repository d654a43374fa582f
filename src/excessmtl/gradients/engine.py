"""The autograd engine, asked directly where torch allows it: what `torch.autograd` checks first is known here."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_run: Callable[..., Any] | None = getattr(torch.autograd.graph, "_engine_run_backward", None)
"""Torch's own affair: where a version has none a step takes a little longer."""


def gradients(
    roots: Sequence[Any], arriving: Sequence[Tensor], targets: Sequence[Any], keep: bool
) -> Sequence[Tensor | None]:
    """What `torch.autograd.grad` returns for tensors or edges, with None at targets that are not reached."""
    if _run is None:
        return torch.autograd.grad(roots, targets, arriving, retain_graph=keep, allow_unused=True)
    found: Sequence[Tensor | None] = _run(
        tuple(roots), tuple(arriving), keep, False, tuple(targets), allow_unreachable=True, accumulate_grad=False
    )
    return found


def accumulate(roots: Sequence[Any], arriving: Sequence[Tensor]) -> None:
    """What `torch.autograd.backward` does; the graph is not kept."""
    if _run is None:
        torch.autograd.backward(roots, arriving)
    else:
        _run(tuple(roots), tuple(arriving), False, False, (), allow_unreachable=True, accumulate_grad=True)
