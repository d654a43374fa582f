"""Putting the combined gradient where training expects it: into `.grad`, or behind a scalar."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.cut import Cut
from excessmtl.gradients.engine import accumulate
from excessmtl.gradients.gathered import Gathered, beside
from excessmtl.gradients.graph import leaves_below
from excessmtl.gradients.hooks import asleep

Contribution = tuple[Tensor | Cut, Tensor]
"""A leaf or a cut, and the gradient that enters there."""
Gates = Sequence[Sequence[Tensor]]


def contributions(
    gathered: Gathered, weights: Tensor, heads: Tensor | None, gates: Gates | None = None
) -> list[Contribution]:
    """The combined gradient of one batch: `weights` on what is shared, `heads` (None: one) on what is a task's own.

    A leaf outside `shared` that several tasks reach is shared in all but name: it gets the weights too.
    """
    stacked = gathered.stacked
    parts: list[Contribution]
    if stacked is None or gates is not None:
        parts = _one_by_one(gathered, weights, torch.ones_like(weights) if heads is None else heads, gates)
    else:
        parts = [(leaf, gradient) for _, leaf, gradient in stacked.owned(heads, gathered.ok)]
        if not gathered.final:
            parts.append((stacked.cut, stacked.at_cut.combined(weights)))
    if gathered.final and gathered.matrix is not None:
        combined = weights.to(gathered.matrix.dtype) @ gathered.matrix
        combined = combined if gathered.scale is None else combined * gathered.scale
        for parameter, part in zip(gathered.parameters, beside(combined, gathered.parameters), strict=True):
            parts.append((parameter, part.view(parameter.shape).to(parameter.dtype)))
    if (overflow := gathered.overflow) is not None:
        parts = [(target, g * torch.where(overflow, torch.nan, 1.0).to(g.dtype)) for target, g in parts]
    return parts


def _one_by_one(gathered: Gathered, weights: Tensor, heads: Tensor, gates: Gates | None) -> list[Contribution]:
    ok = gathered.ok
    owners: dict[int, int] = {}
    for task in gathered.own:
        for leaf, _ in task:
            owners[id(leaf)] = owners.get(id(leaf), 0) + 1
    total: dict[int, list[Any]] = {}

    def add(target: Tensor | Cut, gradient: Tensor, task: int, multiplier: Tensor) -> None:
        slot = total.setdefault(id(target), [target, None])
        if slot[1] is None:
            slot[1] = _scaled(gradient, ok[task], multiplier)
        elif gradient.is_sparse or slot[1].is_sparse:
            slot[1] = slot[1] + _scaled(gradient, ok[task], multiplier)
        else:
            slot[1].addcmul_(torch.where(ok[task], gradient, 0), multiplier.to(gradient.dtype))

    for i in range(len(gathered.own)):
        for j, (cut, gradient) in enumerate(gathered.cuts[i]):
            add(cut, gradient, i, weights[i] if gates is None else gates[i][j])
        for leaf, gradient in gathered.own[i]:
            add(leaf, gradient, i, heads[i] if owners[id(leaf)] == 1 else weights[i])
    return [(target, gradient) for target, gradient in total.values()]


def _scaled(gradient: Tensor, ok: Tensor, multiplier: Tensor) -> Tensor:
    # `where`, not a product: zero times NaN is NaN.
    multiplier = multiplier.to(gradient.dtype)
    if not gradient.is_sparse:
        return torch.where(ok, gradient, 0) * multiplier
    gradient = gradient.coalesce().clone()
    gradient.values().copy_(torch.where(ok, gradient.values(), 0) * multiplier)
    return gradient


def write(parts: list[Contribution]) -> None:
    """Add all contributions to `.grad` in one pass of the autograd engine, which walks the trunk below the cuts once.

    Leaves go through the engine as well, not by hand: whatever hooks a trainer has put on them, to average gradients
    over processes for one, run as they would under `loss.backward()`. `parts` is emptied: a gradient that nobody else
    holds becomes `.grad` without a copy.
    """
    roots: list[Any] = [target.edge for target, _ in parts if isinstance(target, Cut)]
    gradients = [gradient for target, gradient in parts if isinstance(target, Cut)]
    leaves = [(target, gradient) for target, gradient in parts if isinstance(target, Tensor)]
    parts.clear()
    if leaves:
        deliver: Callable[..., Tensor] = _Delivered.apply
        with torch.enable_grad():
            root = deliver([gradient for _, gradient in leaves], *(leaf for leaf, _ in leaves))
        leaves.clear()
        roots.append(root)
        gradients.append(root.detach())
    if roots:
        accumulate(roots, gradients)


class _Delivered(torch.autograd.Function):
    """A node above leaves whose backward hands them gradients computed beforehand."""

    @staticmethod
    def forward(ctx: Any, gradients: Any, *leaves: Tensor) -> Tensor:
        ctx.gradients = gradients
        return torch.empty((), device=leaves[0].device)  # neither its value nor what arrives there has a say

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        gradients, ctx.gradients = ctx.gradients, None
        return None, *gradients


class _Deferred(torch.autograd.Function):
    """A scalar whose backward delivers gradients computed beforehand."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, unscale: Tensor | float, gradients: Any, *targets: Tensor) -> Tensor:
        ctx.unscale, ctx.gradients = unscale, gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        factor = outputs[0] * ctx.unscale
        return None, None, None, *((gradient * factor).to(gradient.dtype) for gradient in ctx.gradients)


def _at_leaves(parts: Sequence[Contribution]) -> list[Contribution]:
    """The same contributions after the trunk has been walked."""
    cuts = [(target, gradient) for target, gradient in parts if isinstance(target, Cut)]
    leaves = leaves_below([cut for cut, _ in cuts])
    edges: list[Any] = [cut.edge for cut, _ in cuts]
    with asleep(leaves):
        found = torch.autograd.grad(edges, leaves, [gradient for _, gradient in cuts], allow_unused=True)
    walked = [(leaf, gradient) for leaf, gradient in zip(leaves, found, strict=True) if gradient is not None]
    return [*walked, *(part for part in parts if isinstance(part[0], Tensor))]


def defer(value: Tensor, parts: Sequence[Contribution], scale: Tensor | None) -> Tensor:
    """A scalar worth `value`; its backward adds the contributions (times the gradient it is given)."""
    targets = [target.tensor() if isinstance(target, Cut) else target for target, _ in parts]
    if any(target is None for target in targets):  # a representation nobody holds any more
        parts = _at_leaves(parts)
        targets = [target for target, _ in parts if isinstance(target, Tensor)]
    apply: Callable[..., Tensor] = _Deferred.apply
    with torch.enable_grad():
        return apply(value, 1.0 if scale is None else 1.0 / scale, [g for _, g in parts], *targets)
