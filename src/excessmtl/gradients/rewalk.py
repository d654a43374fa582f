"""Delivering the combined gradient by a second walk from the losses, for modules sharded by `fully_shard`.

FSDP gathers the parameters of a module when a gradient arrives at its output, and averages their gradients over the
processes when one leaves at its input or the walk ends. A gradient that reaches a parameter in any other way stays in
its process, and a walk that starts inside a module finds parameters whose memory has been freed. So everything is
walked again as `loss.backward()` would, and what arrives at leaves and cuts is replaced by what has been worked out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge
from torch.utils.hooks import RemovableHandle

from excessmtl.gradients.cut import Cut
from excessmtl.gradients.graph import leaf_of
from excessmtl.gradients.write import Contribution

_End = tuple[Node, int]
"""A node at which the heads end, and which of its outputs was taken."""


class _Replacement:
    """What is to arrive at each end of the heads, in a walk during which it is `due`."""

    def __init__(self, parts: Iterable[Contribution]) -> None:
        self.gradients: dict[_End, Tensor] = {}
        for target, gradient in parts:
            edge: Any = target.edge if isinstance(target, Cut) else get_gradient_edge(target)
            end = edge.node, edge.output_nr
            self.gradients[end] = gradient if end not in self.gradients else self.gradients[end] + gradient
        self._due: dict[_End, Tensor] | None = None

    def due(self, factor: Tensor | None = None) -> None:
        """From now on it replaces what arrives."""
        self._due = dict(self.gradients)
        if factor is not None:
            self._due = {end: (gradient * factor).to(gradient.dtype) for end, gradient in self._due.items()}

    def over(self) -> None:
        """From now on what arrives is left alone."""
        self._due = None

    def hook(self, ends: Sequence[tuple[int, _End]]) -> Callable[..., Any]:
        """For a node with edges to these ends, by their places among its inputs."""

        def replace(inputs: tuple[Tensor | None, ...], outputs: object) -> tuple[Tensor | None, ...] | None:
            if self._due is None:
                return None
            replaced = [*inputs]
            for place, end in ends:
                if (arriving := inputs[place]) is not None:
                    # All of it comes with the first edge to get there; autograd adds up what comes by the others.
                    first = self._due.pop(end, None)
                    replaced[place] = torch.zeros_like(arriving) if first is None else first
            return tuple(replaced)

        return replace


def _install(replacement: _Replacement, losses: Sequence[Tensor], cuts: Iterable[Cut]) -> list[RemovableHandle]:
    """Hooks on all nodes with an edge to a cut or a leaf.

    On the nodes above, not on the ends themselves: hooks that FSDP or a user has put there come later, and see what
    has been replaced.
    """
    stops = {(cut.edge.node, cut.edge.output_nr) for cut in cuts if cut.edge is not None}
    stack: list[Any] = [loss.grad_fn for loss in losses]
    seen, hooks = set(stack), []
    while stack:
        node = stack.pop()
        ends: list[tuple[int, _End]] = []
        for place, (child, output) in enumerate(node.next_functions):
            if child is None:
                continue
            if (child, output) in stops or leaf_of(child) is not None:
                ends.append((place, (child, output)))
            elif child not in seen:
                seen.add(child)
                stack.append(child)
        if ends:
            hooks.append(node.register_hook(replacement.hook(ends)))
    return hooks


def _walkable(losses: Sequence[Tensor | None]) -> list[Tensor]:
    return [loss for loss in losses if loss is not None and loss.grad_fn is not None]


def write_again(losses: Sequence[Tensor | None], cuts: Iterable[Cut], parts: list[Contribution]) -> None:
    """As `write`: add all contributions to `.grad`. The graph from the losses down has to be there still."""
    roots = _walkable(losses)
    replacement = _Replacement(parts)
    parts.clear()
    hooks = _install(replacement, roots, cuts)
    replacement.due()
    try:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
    finally:
        for hook in hooks:
            hook.remove()


def defer_again(
    value: Tensor,
    losses: Sequence[Tensor | None],
    cuts: Iterable[Cut],
    parts: Sequence[Contribution],
    scale: Tensor | None,
) -> Tensor:
    """As `defer`: a scalar worth `value`, whose backward adds the contributions (times the gradient it is given)."""
    roots = _walkable(losses)
    replacement = _Replacement(parts)
    _install(replacement, roots, cuts)  # the hooks go with the graph
    apply: Callable[..., Tensor] = _Again.apply
    with torch.enable_grad():
        return apply(value, 1.0 if scale is None else 1.0 / scale, replacement, *roots)


class _Again(torch.autograd.Function):
    """A scalar whose backward walks the losses, to replace what arrives below."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, unscale: Tensor | float, replacement: _Replacement, *losses: Tensor) -> Tensor:
        ctx.unscale, ctx.replacement = unscale, replacement
        ctx.ones = [torch.ones_like(loss) for loss in losses]
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        ctx.replacement.due(outputs[0] * ctx.unscale)
        # At the end of this walk: the caller may keep the graph, and walk the losses for purposes of his own.
        torch.autograd.Variable._execution_engine.queue_callback(ctx.replacement.over)
        return None, None, None, *ctx.ones
