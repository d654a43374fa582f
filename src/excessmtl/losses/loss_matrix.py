"""A matrix of unreduced losses, [batch, tasks, ...], as one loss and one mask per task."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from excessmtl.engine.graph import leaf_of
from excessmtl.engine.private_torch import arriving_shape, linear_layer
from excessmtl.losses.missing_labels import masked_mean


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
    if matrix.grad_fn is not None:
        _drop_nan_gradients(matrix.grad_fn, labelled)
    batch_and_rest = (0, *range(2, matrix.ndim))
    means = masked_mean(matrix, labelled, batch_and_rest)
    samples = labelled.flatten(2).any(2) if labelled.ndim > 2 else labelled
    return dict(zip(tasks, means.unbind(), strict=True)), dict(zip(tasks, samples.unbind(1), strict=True))


def _expanded(mask: Any, matrix: Tensor) -> Tensor:
    fits = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape in (matrix.shape, matrix.shape[:2])
    if not fits:
        found = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"mask must be a bool tensor of shape {tuple(matrix.shape)} or {tuple(matrix.shape[:2])}, as losses is a "
            f"matrix, found {found}"
        )
    own: Tensor = mask.to(matrix.device)
    return own.reshape(*own.shape, *(1 for _ in range(matrix.ndim - own.ndim))).expand(matrix.shape)


def _drop_nan_gradients(node: Node, labelled: Tensor) -> None:
    """Let no NaN pass that comes from an entry without a label.

    A loss of a target that is NaN has the gradient 0 from here, times NaN. It becomes 0 again where it leaves the
    operations that work entry by entry, which are recognised by their shape; stacked columns are followed one by one.
    """
    stack: list[tuple[Node, Tensor]] = [(node, labelled)]
    seen = {node}
    while stack:
        node, entries = stack.pop()
        node.register_hook(_without_nan(entries))
        children = [child for child, _ in node.next_functions]
        stacked = type(node).__name__ == "StackBackward0" and entries.ndim > 1 and len(children) == entries.shape[1]
        parts = entries.unbind(1) if stacked else [entries] * len(children)
        for child, part in zip(children, parts, strict=True):
            if child is None or child in seen or leaf_of(child) is not None or arriving_shape(child) != part.shape:
                continue
            if linear_layer(child) is not None:  # not entry by entry
                continue
            seen.add(child)
            stack.append((child, part))


def _without_nan(labelled: Tensor) -> Callable[..., tuple[Tensor | None, ...]]:
    def drop(gradients: tuple[Tensor | None, ...], outputs: object) -> tuple[Tensor | None, ...]:
        return tuple(
            torch.where(labelled | ~gradient.isnan(), gradient, 0)
            if gradient is not None and gradient.shape == labelled.shape
            else gradient
            for gradient in gradients
        )

    return drop
