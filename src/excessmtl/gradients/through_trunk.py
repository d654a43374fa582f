"""From z down to the shared parameters for every task: several tasks in one backward pass where that works.

Applies to separate heads whose trunk leads to shared parameters alone. In such a pass every operator works on the
gradients of several tasks (`torch.vmap`). Some cannot: those with sparse gradients, functions and hooks that look at
values. What has failed once is not tried again, and every task then takes a pass of its own; so does every task where
the trunk is compiled.
"""

import math
from collections.abc import Sequence, Set
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from excessmtl.gradients.any_graph import AtParameters
from excessmtl.graph.nodes import nodes_below
from excessmtl.graph.representation import Representation
from excessmtl.tensors import index_of
from excessmtl.torch_private import (
    gradient_entries,
    gradients_at,
    hooks_disabled,
    includes_compiled,
    leaf_of,
    repeatable,
    vmap_warnings_disabled,
)

TASKS_AT_ONCE = 14
"""Tasks that go through the trunk in one backward pass on a GPU. More save little time and take more memory. On a CPU
one by one is the fastest."""
_FEW_ENTRIES, _MANY_ENTRIES, _MANY = 2**29, 2**33, 8
"""How many entries the gradients at all nodes of the trunk may have, over all tasks of a pass: where there are few
tasks, and where there are at least 8. A large trunk keeps a GPU busy by itself: SegNet with 3 tasks is a tenth slower
in one pass than one by one. Many tasks share the rest: `resnet64-40` of the bench takes 6 % longer one by one, and half
the memory (`python -m excessmtl.lab.speed ablation --device cuda`)."""


class TrunkGraph(NamedTuple):
    """What the graph below z consists of."""

    node_types: frozenset[str] = frozenset()
    entries: int = 0
    """Of the gradients at all its nodes together, for one task."""


def graph_below(z: Representation, shared: Set[int]) -> TrunkGraph | None:
    """The graph below z if it leads to shared parameters alone, and to one at least; else None.

    `shared`: the ids of the shared parameters.
    """
    types, leaves, entries = set(), set(), 0
    for node in nodes_below([z]):
        types.add(type(node).__name__)
        if (leaf := leaf_of(node)) is not None:
            leaves.add(id(leaf))
        else:
            entries += gradient_entries(node)
    return TrunkGraph(frozenset(types), entries) if leaves and leaves <= shared else None


class Trunk:
    """Backward passes through the trunk, `tasks_at_once` tasks in each (None: by the device)."""

    def __init__(self, tasks_at_once: int | None) -> None:
        self.tasks_at_once = tasks_at_once
        self.vmap_works = True
        """Whether several tasks at once are still expected to work."""
        self.known: frozenset[str] = frozenset()
        """Types of nodes that have worked."""

    def backward(
        self,
        z: Representation,
        graph: TrunkGraph,
        dz: Tensor,
        losses: Sequence[Tensor | None],
        parameters: Sequence[Tensor],
    ) -> Tensor:
        """[m, n]: from `dz` [m, ...] at z down to the parameters, for all tasks with a loss; zero for the others.

        `graph`: what is below z. One with a new type of node is kept until the caller drops it, because what turns out
        not to work has to be done again.
        """
        tasks: Sequence[int] = [task for task, loss in enumerate(losses) if loss is not None]
        rows = AtParameters(parameters, len(losses))
        if len(tasks) < len(losses):
            rows.matrix.zero_()
        compiled = includes_compiled(graph.node_types)
        at_once = 1 if compiled else self.tasks_at_once or self.usual(dz.device, graph.entries, len(tasks))
        with hooks_disabled(parameters), repeatable(nodes_below([z]) if compiled else ()):
            if self.vmap_works and min(at_once, len(tasks)) > 1:
                tasks = self._several(z, graph.node_types, dz, even_parts(tasks, at_once), rows)
            for task in tasks:
                rows.take([task], gradients_at([z.edge], [dz[task]], parameters, task != tasks[-1]))
        return rows.matrix

    def _several(
        self,
        z: Representation,
        types: frozenset[str],
        dz: Tensor,
        parts: Sequence[Sequence[int]],
        rows: AtParameters,
    ) -> Sequence[int]:
        """The tasks that need a pass of their own: none where all goes well."""
        known, left = types <= self.known, list(parts)
        while left and self.vmap_works:
            retain = not known or len(left) > 1
            try:
                gradients = _vmapped(z, rows.parameters, _picked(dz, left[0]), retain)
            except Exception as error:  # whatever a hook or a function of the user's may raise
                self.vmap_works = False
                if retain:  # if the error is the user's own, it will come again
                    break
                error.add_note("Several tasks in one backward pass have worked before. Pass tasks_at_once=1.")
                raise
            rows.take(left.pop(0), gradients)
            del gradients  # before the next pass
        if self.vmap_works:
            self.known |= types
        return [task for part in left for task in part]

    def usual(self, device: torch.device, entries: int, tasks: int) -> int:
        """How many of the tasks at once, for gradients with so many entries in the trunk."""
        most = _MANY_ENTRIES if tasks >= _MANY else _FEW_ENTRIES
        return 1 if device.type == "cpu" else max(1, min(TASKS_AT_ONCE, most // max(entries, 1)))


def _vmapped(z: Representation, parameters: Sequence[Tensor], dz: Tensor, retain_graph: bool) -> list[Tensor | None]:
    """The gradients [k, ...] at all parameters, for `dz` [k, ...]."""
    reached: list[bool] = []

    def of_one(dz: Tensor) -> tuple[Tensor, ...]:
        gradients = gradients_at([z.edge], [dz], parameters, retain_graph)
        reached.extend(gradient is not None for gradient in gradients)
        return tuple(gradient for gradient in gradients if gradient is not None)

    with vmap_warnings_disabled():
        several = iter(torch.vmap(of_one)(dz))
    return [next(several) if is_reached else None for is_reached in reached]


def even_parts(tasks: Sequence[int], most: int) -> list[Sequence[int]]:
    """As few parts as `most` allows, of sizes as equal as possible: the largest decides how much memory is needed."""
    count = math.ceil(len(tasks) / most)
    ends = [len(tasks) * part // count for part in range(count + 1)]
    return [tasks[start:end] for start, end in pairwise(ends)]


def _picked(dz: Tensor, tasks: Sequence[int]) -> Tensor:
    first, end = tasks[0], tasks[-1] + 1
    return dz[first:end] if end - first == len(tasks) else dz[index_of(tuple(tasks), dz.device)]
