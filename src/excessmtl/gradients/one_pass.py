"""Heads that meet the trunk at one tensor z, and each other nowhere above it: most multi-task models.

One search of the graph recognises them. One backward pass then serves all heads: a hook on each node just above z
takes the task's gradient as it arrives, before autograd adds it to the others'.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.graph import Node

from excessmtl.gradients.any_graph import nothing_below
from excessmtl.gradients.own_leaves import Pairs
from excessmtl.graph.plan import Plan
from excessmtl.graph.representation import FindRepresentation, Representation
from excessmtl.graph.search import Reach
from excessmtl.tensors import dense
from excessmtl.torch_private import gradients_at, hooks_disabled, leaf_of

Losses = Sequence[Tensor | None]
Store = Callable[[int, Tensor], None]
"""Takes a gradient that arrived at z for a task; there may be several for one task."""


@dataclass
class SeparateHeads:
    """What lies above z, per task."""

    representation: Representation
    entries: list[dict[Node, list[int]]]
    """The nodes that take z as an input, and which of their inputs it is."""
    leaves: list[list[Tensor]]
    repeated: set[Node]
    """Nodes to which several edges lead."""
    users: dict[Node, tuple[Node, int]]
    """The node above each node, and which of its inputs it is; of several, the one found first."""


@dataclass
class SeparatePlan(Plan):
    """A plan for separate heads; `at_parameters` are all shared parameters, or none."""

    heads: SeparateHeads | None = None
    linear: Any = None
    """The `LinearHeads` or the `OneHead`, where all tasks take z by a linear layer."""
    trunk: Any = None
    """The `TrunkGraph`, where its gradients are computed for every task."""
    separate_heads: ClassVar[bool] = True

    @cached_property
    def reaches(self) -> Sequence[Reach]:
        """What each loss reaches; without z where the backward passes go on to the shared parameters."""
        assert self.heads is not None
        z = {} if self.at_parameters else {id(self.heads.representation): self.heads.representation}
        pairs = zip(self.heads.leaves, self.heads.entries, strict=True)
        return [Reach({id(leaf): leaf for leaf in leaves}, z if above else {}) for leaves, above in pairs]

    @property
    def recognised(self) -> list[Representation]:
        """The tensor z."""
        assert self.heads is not None
        return [self.heads.representation]


def find_separate_heads(losses: Losses, shared: Set[int], find: FindRepresentation) -> SeparateHeads | None:
    """The heads, or None where the graph is of any other kind. `shared`: the ids of the shared parameters."""
    owner: dict[Node, int] = {}
    z: Representation | None = None
    entries: list[dict[Node, list[int]]] = [{} for _ in losses]
    leaves: list[list[Tensor]] = [[] for _ in losses]
    repeated: set[Node] = set()
    users: dict[Node, tuple[Node, int]] = {}
    types: Set[str] | None = getattr(find, "types", None)  # of nodes that can be a representation; None: any
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
                may_be_z = types is None or type(child).__name__ in types
                if may_be_z and (representation := find(child, output)) is not None:
                    z = z or representation
                    if representation is not z:
                        return None
                    entries[task].setdefault(node, []).append(position)
                    continue
                if child in owner:
                    if owner[child] != task:
                        return None
                    repeated.add(child)
                    continue
                owner[child], users[child] = task, (node, position)
                if (leaf := leaf_of(child)) is None:
                    stack.append(child)
                elif id(leaf) in shared:
                    return None
                else:
                    leaves[task].append(leaf)
        if not entries[task]:
            return None
    return None if z is None else SeparateHeads(z, entries, leaves, repeated, users)


class _Collector:
    """A hook that takes over the gradients that a node sends to z, so that autograd does not add them up."""

    def __init__(self, store: Store, shown: Callable[[Tensor], Tensor]) -> None:
        self.store, self.shown, self.passed_on = store, shown, False

    def hook(self, task: int, positions: list[int]) -> Callable[..., Any]:
        """For one node above z and the positions of z among its inputs."""

        def take(inputs: tuple[Tensor | None, ...], outputs: object) -> tuple[Tensor | None, ...]:
            passed = list(inputs)
            for position in positions:
                if (gradient := inputs[position]) is not None:
                    # User hooks on z still expect a tensor, so one gradient is passed on.
                    passed[position] = None if self.passed_on else self.shown(gradient)
                    self.passed_on = True
                    self.store(task, dense(gradient))
            return tuple(passed)

        return take


def backward_to_representation(losses: Losses, heads: SeparateHeads, store: Store, retain_graph: bool) -> Pairs:
    """One backward pass: hands the tasks' gradients at z to `store`, and returns those at their own leaves."""
    leaves = [leaf for own in heads.leaves for leaf in own]
    z = heads.representation.tensor()
    # The hooks of a z that nobody holds cannot be disabled, and some overwrite what they see.
    collector = _Collector(store, torch.clone if z is None else _itself)
    hooks = [
        node.register_hook(collector.hook(task, positions))
        for task, above in enumerate(heads.entries)
        for node, positions in above.items()
    ]
    try:
        with hooks_disabled([z, *leaves]), nothing_below([heads.representation]):
            gradients = gradients_from(losses, [heads.representation.edge, *leaves], retain_graph)
    finally:
        for hook in hooks:
            hook.remove()
    return by_task(heads.leaves, gradients[1:])


def gradients_from(losses: Losses, targets: list[Any], retain_graph: bool = False) -> Sequence[Tensor | None]:
    """The gradients at the targets by one backward pass from all losses."""
    roots = [loss for loss in losses if loss is not None]
    return gradients_at(roots, _ones(roots), targets, retain_graph)


def _ones(losses: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of each loss. New ones at every step, each with its own memory: some functions overwrite it."""
    dtype, device = losses[0].dtype, losses[0].device
    ones = torch.ones(len(losses), dtype=dtype, device=device).unbind()  # one kernel
    return [
        unit if loss.ndim == 0 and loss.dtype == dtype and loss.device == device else torch.ones_like(loss)
        for unit, loss in zip(ones, losses, strict=True)
    ]


def by_task(leaves: Sequence[Sequence[Tensor]], gradients: Sequence[Tensor | None]) -> Pairs:
    """Leaves with their gradients, without those that no gradient reached."""
    if not gradients:
        return [[] for _ in leaves]
    remaining = iter(gradients)
    pairs = [[(leaf, next(remaining)) for leaf in own] for own in leaves]
    return [[(leaf, gradient) for leaf, gradient in own if gradient is not None] for own in pairs]


def _itself(gradient: Tensor) -> Tensor:
    return gradient
