"""A matrix of unreduced losses, [batch, tasks, ...], as one loss and one mask per task."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from excessmtl.losses.reduction import masked_mean
from excessmtl.torch_private import (
    arriving_shape,
    derivative_by_factor,
    leaf_of,
    linear_layer,
    passed_through,
    rearranges_entries,
)


def split(matrix: Tensor, mask: Any, tasks: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Task -> mean over its labelled entries, and task -> which samples carry a label.

    Without a mask, NaN marks what has no label. Nothing is read from the device: a task that is labelled nowhere has
    the loss 0 and a mask that is False throughout.
    """
    if matrix.shape[1] != len(tasks):
        raise ValueError(
            f"losses must be [batch, {len(tasks)} tasks, ...] in the order of tasks, found shape "
            f"{tuple(matrix.shape)}; the tasks are {list(tasks)}"
        )
    labelled = ~matrix.detach().isnan() if mask is None else _expanded(mask, matrix)
    if matrix.grad_fn is not None and torch.is_grad_enabled():
        _drop_nan_gradients(matrix.grad_fn, labelled)
    batch_and_rest = (0, *range(2, matrix.ndim))
    means = masked_mean(matrix, labelled, batch_and_rest)
    samples = labelled.flatten(2).any(2) if labelled.ndim > 2 else labelled
    return dict(zip(tasks, means.unbind(), strict=True)), dict(zip(tasks, samples.unbind(1), strict=True))


def _expanded(mask: Any, matrix: Tensor) -> Tensor:
    fits = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape in (matrix.shape, matrix.shape[:2])
    if not fits:
        given = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"mask must be a bool tensor of shape {tuple(matrix.shape)} or {tuple(matrix.shape[:2])}, as losses is a "
            f"matrix, found {given}"
        )
    own: Tensor = mask.to(matrix.device)
    return own.reshape(*own.shape, *(1 for _ in range(matrix.ndim - own.ndim))).expand(matrix.shape)


def _drop_nan_gradients(node: Node, labelled: Tensor) -> None:
    """Let no NaN pass that comes from an entry without a label.

    A loss of a target that is NaN has the gradient 0 from here, times NaN. It becomes 0 again where it leaves the
    operations that work entry by entry, which are recognised by their shape. Operations that rearrange entries are
    followed to where the entries come from.
    """
    labelled_at = {node: labelled}
    stack = [node]
    while stack:
        node = stack.pop()
        entries = labelled_at[node]
        children = [child for child, _ in node.next_functions]
        if not any(map(_computes_entries, children)):
            continue
        for child, part in zip(children, _entries_of_inputs(node, entries, len(children)), strict=True):
            if child is None or part is None or not _computes_entries(child) or arriving_shape(child) != part.shape:
                continue
            known = labelled_at.get(child)
            if known is not part:
                labelled_at[child] = part if known is None else known | part
                stack.append(child)
    for node, entries in labelled_at.items():
        if not rearranges_entries(node):
            node.register_hook(_without_nan(node, entries))


def _computes_entries(node: Node | None) -> bool:
    """Not a leaf, and not a linear layer, each of whose outputs is computed from several inputs."""
    return node is not None and leaf_of(node) is None and linear_layer(node) is None


def _entries_of_inputs(node: Node, labelled: Tensor, inputs: int) -> Sequence[Tensor | None]:
    """Which entries of each input of an operation lead to a label."""
    if not rearranges_entries(node):
        return [labelled] * inputs
    # Its backward function takes every entry of a gradient to where it came from.
    return [None if part is None else part != 0 for part in passed_through(node, labelled.float())]


def _without_nan(node: Node, labelled: Tensor) -> Callable[..., tuple[Tensor | None, ...]]:
    # A learned factor that is broadcast, as one for each task, gets the sum over the batch: NaN in one entry makes all
    # of it NaN, so the entries have to be left out before. Derivatives and not the node itself, or the two would keep
    # each other alive.
    derivatives = [derivative_by_factor(node, position) for position in range(len(node.next_functions))]

    def clean(gradient: Tensor | None, derivative: Tensor | None, arriving: Tensor | None) -> Tensor | None:
        if gradient is None:
            return None
        if gradient.shape == labelled.shape:
            return torch.where(labelled | ~gradient.isnan(), gradient, 0)
        if derivative is None or arriving is None or arriving.shape != labelled.shape:
            return gradient
        terms = arriving * derivative
        return torch.where(labelled | ~terms.isnan(), terms, 0).sum_to_size(gradient.shape).to(gradient.dtype)

    def drop(gradients: tuple[Tensor | None, ...], outputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        pairs = zip(gradients, derivatives, strict=True)
        return tuple(clean(gradient, derivative, outputs[0]) for gradient, derivative in pairs)

    return drop
