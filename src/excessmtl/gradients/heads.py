"""All heads in one pass of the autograd engine, for the usual model: every task meets the trunk at one tensor z, and
the tasks meet nowhere above it.

A pass per head is what works for any graph. Here a hook on the nodes just above z takes each task's gradient as it
arrives, before it is added to the others', and the engine is started once instead of m times.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from excessmtl.gradients.capture import Cut, FindCut
from excessmtl.gradients.graph import Reach, leaf_of
from excessmtl.gradients.hooks import asleep
from excessmtl.gradients.linear import Linear, linear_heads
from excessmtl.gradients.products import Products
from excessmtl.gradients.rows import Rows

Pair = tuple[Tensor, Tensor]
"""A leaf and its gradient."""


@dataclass(frozen=True)
class Heads:
    """What lies above z, per task."""

    cut: Cut
    entries: list[dict[Node, list[int]]]
    """The nodes that take z as an input, and which of their inputs it is."""
    leaves: list[list[Tensor]]

    @property
    def all_leaves(self) -> list[Tensor]:
        """Of all tasks, in order."""
        return [leaf for own in self.leaves for leaf in own]

    @property
    def reaches(self) -> list[Reach]:
        """The same in the words of the general walk."""
        cuts = {id(self.cut): self.cut}
        return [
            Reach({id(leaf): leaf for leaf in leaves}, cuts if above else {})
            for leaves, above in zip(self.leaves, self.entries, strict=True)
        ]


def separate_heads(
    losses: Sequence[Tensor | None], shared: Collection[Tensor], find_cut: FindCut | None
) -> Heads | None:
    """The heads, or None where the graph is of any other kind."""
    if find_cut is None:
        return None
    shared_ids = {id(parameter) for parameter in shared}
    owner: dict[Node, int] = {}
    cut: Cut | None = None
    entries: list[dict[Node, list[int]]] = [{} for _ in losses]
    leaves: list[list[Tensor]] = [[] for _ in losses]
    for task, loss in enumerate(losses):
        if loss is None:
            continue
        if loss.grad_fn is None or loss.grad_fn in owner:
            return None
        owner[loss.grad_fn] = task
        stack = [loss.grad_fn]
        while stack:
            node = stack.pop()
            for position, (child, output) in enumerate(node.next_functions):
                if child is None:
                    continue
                if (found := find_cut(child, output)) is not None:
                    cut = cut or found
                    if found is not cut:
                        return None
                    entries[task].setdefault(node, []).append(position)
                    continue
                if child in owner:
                    if owner[child] != task:
                        return None
                    continue
                owner[child] = task
                if (leaf := leaf_of(child)) is None:
                    stack.append(child)
                elif id(leaf) in shared_ids:
                    return None
                else:
                    leaves[task].append(leaf)
        if not entries[task]:
            return None
    return None if cut is None else Heads(cut, entries, leaves)


class _Arrival:
    """A hook that adds the gradients arriving at z from one node to a task's row."""

    def __init__(self, rows: Rows, task: int, positions: list[int]) -> None:
        self.rows, self.task, self.positions = rows, task, positions

    def __call__(self, inputs: tuple[Tensor | None, ...], outputs: object) -> None:
        for position in self.positions:
            if (gradient := inputs[position]) is not None:
                self.rows.add(self.task, gradient)


def walk(losses: Sequence[Tensor | None], heads: Heads) -> tuple[Rows | Products, list[list[Pair]]]:
    """The tasks' gradients at z, and per task its own leaves with theirs. The graph above z is freed."""
    linear = linear_heads(heads.cut, heads.entries)
    with asleep([heads.cut.tensor(), *heads.all_leaves]):
        at_cut, found = _to_outputs(losses, heads, linear) if linear else _to_cut(losses, heads)
    remaining = iter(found)
    pairs = [[(leaf, next(remaining)) for leaf in own] for own in heads.leaves]
    return at_cut, [[(leaf, gradient) for leaf, gradient in own if gradient is not None] for own in pairs]


def _to_outputs(
    losses: Sequence[Tensor | None], heads: Heads, linear: Sequence[Linear | None]
) -> tuple[Products, Sequence[Tensor | None]]:
    """Down to the outputs of linear heads, which need not be asked for their gradient at z.

    What arrives there is taken from the layer as it works, not asked of autograd: that would be the gradient before
    the hooks which a user may have put on the output.
    """
    layers = [layer for layer in linear if layer is not None]
    arrived: dict[int, Tensor] = {}
    hooks = [layer.node.register_hook(partial(_arrive, arrived, place)) for place, layer in enumerate(layers)]
    try:
        found = _gradients(losses, heads.all_leaves)
    finally:
        for hook in hooks:
            hook.remove()
    left = [
        heads.cut.stored.new_zeros(len(heads.cut.stored), len(layer.weight)) if place not in arrived else arrived[place]
        for place, layer in enumerate(layers)
    ]
    sizes = tuple(0 if layer is None else len(layer.weight) for layer in linear)
    right = [layer.weight.detach() for layer in layers]
    return Products(torch.cat(left, dim=1), torch.cat(right), sizes), found


def _arrive(arrived: dict[int, Tensor], place: int, inputs: object, outputs: tuple[Tensor | None, ...]) -> None:
    """A hook that keeps the gradient at the output of a layer."""
    if outputs[0] is not None:
        arrived[place] = outputs[0]


def _to_cut(losses: Sequence[Tensor | None], heads: Heads) -> tuple[Rows, Sequence[Tensor | None]]:
    """A gradient at z is copied to its row as soon as it is there: its memory serves the next head, and what is copied
    is still in the cache.
    """
    rows = Rows.like(heads.cut.stored, len(losses))
    hooks = [
        node.register_hook(_Arrival(rows, task, positions))
        for task, above in enumerate(heads.entries)
        for node, positions in above.items()
    ]
    try:
        # z is a target so that its gradients are computed at all. The sum that arrives there is not needed, but must
        # not be kept from arriving: whoever has put a hook on z expects a tensor.
        found = _gradients(losses, [heads.cut.edge, *heads.all_leaves])
    finally:
        for hook in hooks:
            hook.remove()
    rows.finish()
    return rows, found[1:]


def _gradients(losses: Sequence[Tensor | None], targets: list[Any]) -> Sequence[Tensor | None]:
    roots = [loss for loss in losses if loss is not None]
    ones: list[Tensor] | None = None  # made by the engine, one for each loss
    if all(root.shape == roots[0].shape and root.dtype == roots[0].dtype for root in roots):
        ones = [torch.ones_like(roots[0])] * len(roots)
    return torch.autograd.grad(roots, targets, ones, allow_unused=True)
