"""All heads in one pass of the autograd engine, for the usual model: every task meets the trunk at one tensor z, and
the tasks meet nowhere above it.

A pass per head is what works for any graph. Here the engine is started once instead of m times: it stops at the outputs
of linear layers on z, or else a hook on the nodes just above z takes each task's gradient as it arrives, before it is
added to the others'.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from excessmtl.gradients.cut import Cut, FindCut
from excessmtl.gradients.engine import gradients
from excessmtl.gradients.graph import Reach, leaf_of
from excessmtl.gradients.hooks import asleep
from excessmtl.gradients.linear import AtOutputs, Linear, linear_heads
from excessmtl.gradients.maps import Maps, large
from excessmtl.gradients.rows import Rows

Inputs = tuple[Tensor | None, ...]
"""The gradients that a node has worked out for its inputs."""
Losses = Sequence[Tensor | None]
Pair = tuple[Tensor, Tensor]
"""A leaf and its gradient."""


@dataclass(frozen=True)
class Heads:
    """What lies above z, per task."""

    cut: Cut
    entries: list[dict[Node, list[int]]]
    """The nodes that take z as an input, and which of their inputs it is."""
    leaves: list[list[Tensor]]
    repeated: set[Node]
    """Nodes to which several edges lead."""

    def reaches(self, to_cut: bool) -> list[Reach]:
        """The same in the words of the general walk, with the cut or without."""
        cuts = {id(self.cut): self.cut} if to_cut else {}
        return [
            Reach({id(leaf): leaf for leaf in leaves}, cuts if above else {})
            for leaves, above in zip(self.leaves, self.entries, strict=True)
        ]


def separate_heads(losses: Sequence[Tensor | None], shared: Set[int], find_cut: FindCut | None) -> Heads | None:
    """The heads, or None where the graph is of any other kind. `shared`: the ids of the shared parameters."""
    if find_cut is None:
        return None
    owner: dict[Node, int] = {}
    cut: Cut | None = None
    entries: list[dict[Node, list[int]]] = [{} for _ in losses]
    leaves: list[list[Tensor]] = [[] for _ in losses]
    repeated: set[Node] = set()
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
                    repeated.add(child)
                    continue
                owner[child] = task
                if (leaf := leaf_of(child)) is None:
                    stack.append(child)
                elif id(leaf) in shared:
                    return None
                else:
                    leaves[task].append(leaf)
        if not entries[task]:
            return None
    return None if cut is None else Heads(cut, entries, leaves, repeated)


class _Copied:
    """A hook that adds the gradients arriving at z from one node to a task's row."""

    def __init__(self, rows: Rows, task: int, positions: list[int]) -> None:
        self.rows, self.task, self.positions = rows, task, positions

    def __call__(self, inputs: Inputs, outputs: object) -> None:
        for position in self.positions:
            if (gradient := inputs[position]) is not None:
                self.rows.add(self.task, gradient)


class _Kept:
    """A hook that takes over the gradients arriving at z from one node, so that they need not be copied or added up."""

    def __init__(self, maps: Maps, held: bool, task: int, positions: list[int]) -> None:
        self.maps, self.held, self.task, self.positions = maps, held, task, positions

    def __call__(self, inputs: Inputs, outputs: object) -> Inputs:
        passed = list(inputs)
        for position in self.positions:
            if (gradient := inputs[position]) is not None:
                passed[position] = None if self.maps.arrived else self._shown(gradient)
                self.maps.add(self.task, gradient)
        return tuple(passed)

    def _shown(self, gradient: Tensor) -> Tensor:
        """What a hook of the user's on z will see. Where nobody holds z such hooks cannot be put to sleep, and some
        overwrite what they see.
        """
        return gradient if self.held else gradient.clone()


def walk(
    losses: Losses, heads: Heads, keep: bool = False, apart: bool = False
) -> tuple[Rows | Maps | AtOutputs, list[list[Pair]]]:
    """The tasks' gradients at z, and per task the leaves whose gradients these do not tell, with theirs.

    The graph above z is not to be walked again, unless `keep`; then nothing that is returned depends on the memory of a
    leaf, which may be gone once autograd has been there. `apart`: large gradients at z need not be in one tensor.
    """
    linear = None if keep else linear_heads(heads.cut, heads.entries, heads.repeated)
    if linear is not None:
        return _to_outputs(losses, heads, linear)
    if apart and not keep and large(heads.cut.stored):
        maps = Maps.at(heads.cut.stored, len(heads.entries))
        held = heads.cut.tensor() is not None
        return maps, _to_cut(losses, heads, keep, partial(_Kept, maps, held))
    # A gradient at z is copied to its row as soon as it is there: its memory serves the next head, and what is copied
    # is still in the cache.
    rows = Rows.like(heads.cut.stored, len(heads.entries))
    own = _to_cut(losses, heads, keep, partial(_Copied, rows))
    rows.finish()
    return rows, own


def _to_outputs(losses: Losses, heads: Heads, linear: Sequence[Linear | None]) -> tuple[AtOutputs, list[list[Pair]]]:
    """Down to the outputs of linear layers, where autograd is not needed any further."""
    layers = [layer for layer in linear if layer is not None]
    done = {id(leaf) for layer in layers for leaf in (layer.weight, layer.bias)}
    leaves = [[leaf for leaf in own if id(leaf) not in done] for own in heads.leaves]
    above = [leaf for own in leaves for leaf in own]
    applied = [layer.applied for layer in layers]
    with asleep(above):
        # The layers themselves are not walked, so what is found has been through the hooks on their outputs.
        found = _gradients(losses, [*(layer.output for layer in layers), *above])
    at_outputs = iter(found)
    arrived = [None if layer is None else next(at_outputs) for layer in linear]
    return AtOutputs(heads.cut.stored, linear, arrived, applied), _by_task(leaves, found[len(layers) :])


def _to_cut(
    losses: Losses,
    heads: Heads,
    keep: bool,
    hook: Callable[[int, list[int]], Callable[[Inputs, object], Inputs | None]],
) -> list[list[Pair]]:
    """Down to z, where `hook`, made for a task and the positions of z among a node's inputs, takes what arrives."""
    leaves = [leaf for own in heads.leaves for leaf in own]
    hooks = [
        node.register_hook(hook(task, positions))
        for task, above in enumerate(heads.entries)
        for node, positions in above.items()
    ]
    try:
        with asleep([heads.cut.tensor(), *leaves]):
            # z is a target so that its gradients are computed at all. What arrives there is not needed, but must not be
            # kept from arriving altogether: whoever has put a hook on z expects a tensor.
            found = _gradients(losses, [heads.cut.edge, *leaves], keep)
    finally:
        for one in hooks:
            one.remove()
    return _by_task(heads.leaves, found[1:])


def _gradients(losses: Losses, targets: list[Any], keep: bool = False) -> Sequence[Tensor | None]:
    roots = [loss for loss in losses if loss is not None]
    return gradients(roots, _ones(roots), targets, keep)


def _ones(losses: Sequence[Tensor]) -> list[Tensor]:
    """What arrives at each loss. Made anew in every step, and apart: functions exist that overwrite what they get."""
    dtype, device = losses[0].dtype, losses[0].device
    ones = torch.ones(len(losses), dtype=dtype, device=device).unbind()  # in one launch
    return [
        one if loss.ndim == 0 and loss.dtype == dtype and loss.device == device else torch.ones_like(loss)
        for one, loss in zip(ones, losses, strict=True)
    ]


def _by_task(leaves: Sequence[Sequence[Tensor]], found: Sequence[Tensor | None]) -> list[list[Pair]]:
    remaining = iter(found)
    pairs = [[(leaf, next(remaining)) for leaf in own] for own in leaves]
    return [[(leaf, gradient) for leaf, gradient in own if gradient is not None] for own in pairs]
