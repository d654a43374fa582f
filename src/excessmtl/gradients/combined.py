"""One backward for all tasks together, for steps that need nothing but the weights and know no representation."""

from collections.abc import Sequence

import torch
from torch import Tensor

from excessmtl.gradients.graph import Reach
from excessmtl.gradients.hooks import asleep
from excessmtl.gradients.write import Contribution


def combined(
    losses: Sequence[Tensor | None],
    reaches: Sequence[Reach],
    shared: Sequence[Tensor],
    weights: Tensor,
    heads: Tensor | None,
    scale: Tensor | None,
) -> list[Contribution]:
    """The weighted gradient.

    The graph is kept for the caller to walk task by task in case something in it is not finite, so it lives as long as
    the losses do. `heads`: multipliers of the tasks' own leaves; None where they are the weights.
    """
    own: dict[int, tuple[Tensor, int]] = {}
    common: dict[int, Tensor] = {id(parameter): parameter for parameter in shared}
    for task, reach in enumerate(reaches):
        for key, leaf in reach.leaves.items():
            if heads is None or key in own:
                common[key] = leaf
                own.pop(key, None)
            elif key not in common:
                own[key] = (leaf, task)
    parts = _walk(losses, list(common.values()), weights, scale)
    if heads is not None:
        parts += _walk(losses, [leaf for leaf, _ in own.values()], heads, scale)
    return parts


def _walk(
    losses: Sequence[Tensor | None], leaves: list[Tensor], multipliers: Tensor, scale: Tensor | None
) -> list[Contribution]:
    if not leaves:
        return []
    roots, outputs = [], []
    for loss, multiplier in zip(losses, multipliers, strict=True):
        if loss is not None:
            output = multiplier if scale is None else multiplier * scale
            roots.append(loss)
            outputs.append(output.to(loss.dtype).reshape(loss.shape))
    with asleep(leaves):
        gradients = torch.autograd.grad(roots, leaves, outputs, retain_graph=True, allow_unused=True)
    # Copies: two leaves may have been given one and the same tensor.
    return [(leaf, g.clone()) for leaf, g in zip(leaves, gradients, strict=True) if g is not None]
