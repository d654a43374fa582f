"""Delivering gradients to modules sharded by `torch.distributed.fsdp.fully_shard`.

FSDP puts the whole parameters into the graph while a module works and takes them away afterwards. It collects the
parameters of a module when a gradient arrives at its output, and averages their gradients over the processes when one
leaves at its input or the backward pass ends. A gradient that reaches a parameter in any other way stays in its
process, and a backward pass that starts inside a module finds parameters whose memory has been freed. So there is a
second backward pass from the losses, in which what arrives at leaves and representations is replaced by what has been
computed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge
from torch.utils.hooks import RemovableHandle

from excessmtl.graph.nodes import nodes_above
from excessmtl.graph.plan import Plan
from excessmtl.graph.representation import Representation
from excessmtl.torch_private import when_backward_ends

_End = tuple[Node, int]
"""A node at which the heads end, and the number of its output."""
_Parts = Sequence[tuple[Tensor | Representation, Tensor]]


def second_backward(parts: list[Any], plan: Plan) -> None:
    """Add all contributions to `.grad` by a backward pass from the losses, whose graph has to be there still."""
    roots, replacement, hooks = _hooked(parts, plan)
    parts.clear()
    replacement.start()
    try:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
    finally:
        for hook in hooks:
            hook.remove()


def deferred_second_backward(value: Tensor, unscale: Tensor | float, parts: _Parts, plan: Plan) -> Tensor:
    """A scalar worth `value`; its backward adds the contributions, times the gradient it is given."""
    roots, replacement, _ = _hooked(parts, plan)  # the hooks live as long as the graph
    apply: Callable[..., Tensor] = _Deferred.apply
    with torch.enable_grad():
        return apply(value, unscale, replacement, *roots)


def _hooked(parts: _Parts, plan: Plan) -> tuple[list[Tensor], "_Replacement", list[RemovableHandle]]:
    """The losses to start from, and hooks that replace what arrives below.

    On the nodes above, not on the ends themselves: hooks that FSDP or a user has put there come later, and see what has
    been replaced.
    """
    roots = [loss for loss in plan.inputs.losses if loss is not None and loss.grad_fn is not None]
    replacement = _Replacement(parts)
    above = nodes_above(roots, plan.representations)
    return roots, replacement, [node.register_hook(replacement.hook(ends)) for node, ends in above if ends]


class _Replacement:
    """What is to arrive at each end of the heads, in a backward pass for which it has been started."""

    def __init__(self, parts: _Parts) -> None:
        self.gradients: dict[_End, Tensor] = {}
        for target, gradient in parts:
            edge: Any = target.edge if isinstance(target, Representation) else get_gradient_edge(target)
            end = edge.node, edge.output_nr
            self.gradients[end] = gradient if end not in self.gradients else self.gradients[end] + gradient
        self._remaining: dict[_End, Tensor] | None = None

    def start(self, factor: Tensor | None = None) -> None:
        """From now on it replaces what arrives, by the gradients times a factor; without one, once and no copies."""
        if factor is None:
            self._remaining, self.gradients = self.gradients, {}
        else:
            self._remaining = {end: (gradient * factor).to(gradient.dtype) for end, gradient in self.gradients.items()}

    def stop(self) -> None:
        """From now on what arrives is left as it is."""
        self._remaining = None

    def hook(self, ends: Sequence[tuple[int, _End]]) -> Callable[..., Any]:
        """For a node with edges to these ends, by their places among its inputs."""

        def replace(inputs: tuple[Tensor | None, ...], outputs: object) -> tuple[Tensor | None, ...] | None:
            if self._remaining is None:
                return None
            replaced = [*inputs]
            for place, end in ends:
                if (arriving := inputs[place]) is not None:
                    # All of it comes by the first edge to get there; autograd adds up what comes by the others.
                    first = self._remaining.pop(end, None)
                    replaced[place] = torch.zeros_like(arriving) if first is None else first
            return tuple(replaced)

        return replace


class _Deferred(torch.autograd.Function):
    """A scalar whose backward passes ones to the losses, to replace what arrives below."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, unscale: Tensor | float, replacement: _Replacement, *losses: Tensor) -> Tensor:
        ctx.unscale, ctx.replacement = unscale, replacement
        ctx.ones = [torch.ones_like(loss) for loss in losses]
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        ctx.replacement.start(outputs[0] * ctx.unscale)
        # At the end of this backward pass: the caller may keep the graph, and use the losses for something else.
        when_backward_ends(ctx.replacement.stop)
        return None, None, None, *ctx.ones
