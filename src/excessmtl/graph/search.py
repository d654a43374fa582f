"""What each loss reaches in the autograd graph: leaves of its own, representations, shared parameters around them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import Node

from excessmtl.graph.representation import FindRepresentation, Representation
from excessmtl.torch_private import leaf_of


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


def explore(losses: Sequence[Tensor | None], shared: Set[int], find: FindRepresentation) -> Explored:
    """Search the graph of all losses. `shared`: the ids of the shared parameters."""
    search = _Search(shared, find)
    for loss in losses:
        root = None if loss is None else loss.grad_fn
        search.graph.reaches.append(Reach() if root is None else search.from_loss(root))
    return search.graph


class _Search:
    """Visits the nodes of one task after the other, each of them once."""

    def __init__(self, shared: Set[int], find: FindRepresentation) -> None:
        self.graph = Explored()
        self._shared, self._find = shared, find
        self._types: Set[str] | None = getattr(find, "types", None)  # of nodes that can be z; None: any
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
        users, find, types = self.graph.users, self._find, self._types
        stack = [root]
        while stack:
            node = stack.pop()
            for position, (child, output) in enumerate(node.next_functions):
                if child is None:
                    continue
                may_be_z = types is None or type(child).__name__ in types
                if may_be_z and (z := find(child, output)) is not None:
                    reach.representations[id(z)] = z
                    reach.takers.setdefault(node, []).append(position)
                elif child in owners:
                    self._again(child, reach, owners[child])
                else:
                    owners[child], users[child] = reach, (node, position)
                    if (leaf := leaf_of(child)) is None:
                        stack.append(child)
                    else:
                        self._end(leaf, reach)
        return reach

    def _end(self, leaf: Tensor, reach: Reach) -> None:
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
        if (leaf := leaf_of(node)) is not None:
            self._end(leaf, reach)
            return
        self.graph.overlap = True
        if node not in self._met:  # searched once more, for all tasks that arrive here
            self._met[node] = self._visit(node, {})
        reach.add(self._met[node])


def nodes_above(
    losses: Iterable[Tensor], representations: Iterable[Representation]
) -> Iterator[tuple[Node, list[tuple[int, tuple[Node, int]]]]]:
    """All nodes above the representations, each with the edges that lead to a representation or a leaf.

    An edge is its place among the node's inputs, and the node and output it leads to.
    """
    stops = {(z.edge.node, z.edge.output_nr) for z in representations if z.edge is not None}
    stack: list[Any] = list(dict.fromkeys(loss.grad_fn for loss in losses))
    seen = set(stack)
    while stack:
        node = stack.pop()
        ends = []
        for place, (child, output) in enumerate(node.next_functions):
            if child is None:
                continue
            if (child, output) in stops or leaf_of(child) is not None:
                ends.append((place, (child, output)))
            elif child not in seen:
                seen.add(child)
                stack.append(child)
        yield node, ends


def nodes_below(representations: Iterable[Representation]) -> Iterator[Node]:
    """All nodes of the trunk."""
    return _nodes_from([z.edge.node for z in representations if z.edge is not None])


def nodes_of(losses: Iterable[Tensor | None]) -> Iterator[Node]:
    """All nodes that the losses were computed with."""
    return _nodes_from([loss.grad_fn for loss in losses if isinstance(loss, Tensor) and loss.grad_fn is not None])


def _nodes_from(stack: list[Node]) -> Iterator[Node]:
    seen = set(stack)
    while stack:
        node = stack.pop()
        yield node
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                stack.append(child)


def leaves_among(nodes: Iterable[Node]) -> list[Tensor]:
    """The leaves at which the graph ends at these nodes."""
    return [leaf for node in nodes if (leaf := leaf_of(node)) is not None]


def one_head_for_all(leaves: Sequence[Iterable[Tensor]]) -> list[Tensor]:
    """The parameters of one head for all tasks, such as `nn.Linear(features, tasks)`; none where there is no such head.

    It is recognised by this: each of the parameters that several tasks reach is reached by all tasks in the batch, and
    has a row for every task there is. `leaves`: per task, those outside `shared` that it reaches.
    """
    reached = [{id(leaf): leaf for leaf in own if isinstance(leaf, nn.Parameter)} for own in leaves]
    reached = [own for own in reached if own]
    counts = Counter(key for own in reached for key in own)
    common = {key: leaf for own in reached for key, leaf in own.items() if counts[key] > 1}
    fits = [counts[key] == len(reached) and leaf.ndim > 0 and len(leaf) == len(leaves) for key, leaf in common.items()]
    return list(common.values()) if all(fits) else []
