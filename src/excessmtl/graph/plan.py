"""What each loss reaches in the graph, and from there a plan: how far the backward pass of each task goes."""

import sys
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from torch import Tensor
from torch.autograd.graph import Node

from excessmtl.distributed import fsdp
from excessmtl.graph import problems
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.nodes import nodes_above
from excessmtl.graph.representation import FindRepresentation, Representation
from excessmtl.torch_private import COMPILER, LEAF_NODE, compiled_among, time_in_graph


@dataclass(eq=False)
class Reach:
    """What lies below a loss, down to the representations."""

    leaves: dict[int, Tensor] = field(default_factory=dict)
    """Leaves outside `shared`, by id."""
    representations: dict[int, Representation] = field(default_factory=dict)
    """By id."""
    shared: bool = False
    """Whether a shared parameter is reached without passing a representation."""
    takers: dict[Node, list[int]] = field(default_factory=dict)
    """The nodes that take a representation as an input, and which of their inputs it is."""

    def add(self, other: "Reach") -> None:
        """Everything that another one reaches too."""
        self.leaves.update(other.leaves)
        self.representations.update(other.representations)
        self.takers.update(other.takers)
        self.shared |= other.shared


@dataclass(eq=False)
class Explored:
    """What all losses reach. Below a representation nothing is visited."""

    reaches: list[Reach] = field(default_factory=list)
    """Per task; empty where a task is missing."""
    overlap: bool = False
    """Whether backward passes of different tasks meet at a node on their way."""
    common: bool = False
    """Whether they meet anywhere, be it at a leaf."""
    repeated: set[Node] = field(default_factory=set)
    """Nodes to which several edges of one task lead."""
    users: dict[Node, tuple[Node, int]] = field(default_factory=dict)
    """The node above each node, and which of its inputs it is; of several, the one visited first."""

    def only_representation(self, losses: Sequence[Tensor | None]) -> Representation | None:
        """The tensor z, if all these tasks take this one and have nothing else in common; else None."""
        present = [reach for loss, reach in zip(losses, self.reaches, strict=True) if loss is not None]
        if self.common or any(reach.shared or len(reach.representations) != 1 for reach in present):
            return None
        both = {key: z for reach in present for key, z in reach.representations.items()}
        return next(iter(both.values())) if len(both) == 1 else None


def explore(losses: Sequence[Tensor | None], shared: Set[int], find: FindRepresentation | None) -> Explored:
    """Search the graph of all losses. `shared`: the ids of the shared parameters. `find`: None to pass all of z."""
    search = _Search(shared, find)
    for loss in losses:
        root = None if loss is None else loss.grad_fn
        search.graph.reaches.append(Reach() if root is None else search.from_loss(root))
    return search.graph


class _Search:
    """Visits the nodes of one task after the other, each of them once."""

    def __init__(self, shared: Set[int], find: FindRepresentation | None) -> None:
        self.graph = Explored()
        self._shared, self._find = shared, find
        self._owners: dict[Node, Reach] = {}
        self._met: dict[Node, Reach] = {}
        """What lies below the nodes at which tasks meet."""

    def from_loss(self, root: Node) -> Reach:
        """What a loss reaches."""
        if root not in self._owners:
            return self._visit(root, self._owners)
        self.graph.overlap = self.graph.common = True
        return self._visit(root, {})

    def _visit(self, root: Node, owners: dict[Node, Reach]) -> Reach:
        reach = owners[root] = Reach()
        users, find = self.graph.users, self._find
        stack = [root]
        while stack:
            node = stack.pop()
            for position, (child, output) in enumerate(node.next_functions):
                if child is None:
                    continue
                z = find(child, output) if find is not None and type(child).__name__ in find.types else None
                if z is not None:
                    reach.representations[id(z)] = z
                    reach.takers.setdefault(node, []).append(position)
                elif child in owners:
                    self._again(child, reach, owners[child])
                else:
                    owners[child], users[child] = reach, (node, position)
                    if type(child) is LEAF_NODE:
                        self._end(child, reach)
                    else:
                        stack.append(child)
        return reach

    def _end(self, node: Node, reach: Reach) -> None:
        leaf: Tensor = node.variable  # type: ignore[attr-defined]  # of a node for a leaf
        if id(leaf) in self._shared:
            reach.shared = True
        else:
            reach.leaves[id(leaf)] = leaf

    def _again(self, node: Node, reach: Reach, owner: Reach) -> None:
        """A node that has been visited before, for the same task or for another one."""
        if owner is reach:
            self.graph.repeated.add(node)
            return
        self.graph.common = True
        if type(node) is LEAF_NODE:
            self._end(node, reach)
            return
        self.graph.overlap = True
        if node not in self._met:  # searched once more, for all tasks that arrive here
            self._met[node] = self._visit(node, {})
        reach.add(self._met[node])


@dataclass(kw_only=True)
class Plan:
    """Where the backward pass of each task ends: at the representation, or at the shared parameters."""

    inputs: StepInputs
    graph: Explored
    representations: Sequence[Representation] = ()
    """All that the losses were computed from, once each. None: the backward passes end at the shared parameters."""
    overlap: bool = True
    """Whether the backward passes of different tasks meet on the way, so that only the last may free the graph."""
    at_parameters: Sequence[Tensor] = ()
    """Shared parameters whose gradient is computed for every task."""
    complete: bool = False
    """Whether these gradients are all that the shared parameters get: the trunk has been passed."""
    second_backward: bool = False
    """Whether gradients are delivered by a second backward pass from the losses, as FSDP needs it."""
    separate_heads: ClassVar[bool] = False
    """Whether it is known that no two tasks meet above the representation."""

    @property
    def reaches(self) -> Sequence[Reach]:
        """What each loss reaches."""
        return self.graph.reaches

    def tasks_at(self, z: Representation) -> list[int]:
        """The tasks whose losses were computed from this tensor."""
        return [task for task, reach in enumerate(self.reaches) if id(z) in reach.representations]

    @property
    def own_leaves(self) -> list[Tensor]:
        """All leaves outside `shared` that a loss reaches."""
        return list({key: leaf for reach in self.reaches for key, leaf in reach.leaves.items()}.values())

    @property
    def common_leaves(self) -> bool:
        """Whether several tasks reach one of these."""
        return len(self.own_leaves) < sum([len(reach.leaves) for reach in self.reaches])

    @property
    def leaves(self) -> list[list[Tensor]]:
        """Per task: the leaves outside `shared` that its loss reaches."""
        return [list(reach.leaves.values()) for reach in self.reaches]

    @cached_property
    def heads_compiled(self) -> bool:
        """Whether tasks meet in compiled code above the representation, which hides what they reach below it."""
        if not self.overlap or COMPILER not in sys.modules:
            return False
        losses = [loss for loss in self.inputs.losses if loss is not None]
        return bool(compiled_among(node for node, _ in nodes_above(losses, self.representations)))


def plan(inputs: StepInputs, explored: Explored | None = None) -> Plan:
    """The plan that works for any graph, or a ValueError that says why there is none.

    `explored`: the graph down to the representations, where it has been searched already.
    """
    sharded = inputs.distributed and fsdp.in_use()
    find = inputs.finder() if inputs.at is not None or not inputs.probe.to_the_end else None
    problem: str | None = None
    if find is not None:
        graph = explored or explore(inputs.losses, inputs.shared_ids, find)
        has_z = any(reach.representations for reach in graph.reaches)
        around = [task for task, reach in zip(inputs.tasks, graph.reaches, strict=True) if reach.shared]
        if around and has_z:
            problem = f"the loss of task {around[0]!r} also reaches shared parameters around the representation"
        if inputs.at is not None and (around or not has_z):
            raise ValueError(
                f"at does not hold the whole representation: {problem if has_z else 'no loss was computed from it'}; "
                "pass a tuple of all tensors through which the losses reach the shared parameters"
            )
        if has_z and not around and not inputs.probe.to_the_end:
            return Plan(
                inputs=inputs,
                graph=graph,
                representations=_representations(graph),
                overlap=graph.overlap,
                at_parameters=inputs.probe.parameters(inputs.shared),
                second_backward=sharded,
            )
    if inputs.probe.at_representation or sharded:
        if find is not None and problem is not None:
            raise ValueError(problems.around_representation(inputs, find, around[0]))
        raise ValueError(problems.no_representation(inputs, find))
    return at_shared_parameters(inputs)


def _representations(graph: Explored) -> list[Representation]:
    """All of them in the order they were computed in, which does not depend on which tasks are present."""
    every = {key: z for reach in graph.reaches for key, z in reach.representations.items()}
    return sorted(every.values(), key=lambda z: 0 if z.edge is None else time_in_graph(z.edge.node))


def at_shared_parameters(inputs: StepInputs) -> Plan:
    """Every task's backward pass goes all the way down."""
    graph = explore(inputs.losses, inputs.shared_ids, None)
    if not any(reach.shared for reach in graph.reaches):
        raise ValueError(problems.no_shared_parameter(inputs))
    return Plan(inputs=inputs, graph=graph, overlap=graph.overlap, at_parameters=inputs.parameters, complete=True)
