"""Graphs like one that was searched before: what was found there is known, and need not be looked for again.

A search asks every node above z what it is. From step to step the nodes are new, but most graphs differ in nothing
else. So a graph is compared with one that was searched: the types of its nodes, where their edges lead, and the leaves.
What grows with the depth of the trunk is not looked at.
"""

from collections.abc import Iterable, Set
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge

from excessmtl.engine.graph import leaf_of
from excessmtl.engine.representation import FindRepresentation, Representation, may_be_noted, noted_types
from excessmtl.fast.linear_heads import LinearHeads
from excessmtl.fast.selection import Selected, through_selection
from excessmtl.fast.separate_heads import Losses, SeparateHeads

SEARCHES = 2
"""Graphs of a kind that are searched, and in which hooks are looked for: whoever has hooks has them from the beginning.
The next ones are only compared."""
_MOST = 4
"""Kinds that are remembered: all tasks, and a few with labels missing."""
_PLAIN = (nn.Parameter, Tensor)
"""Not types of their own, which may do something else with a gradient."""
Found = tuple[SeparateHeads, LinearHeads | None]


class _Node(NamedTuple):
    """A node: its type, and what the edges at each place lead to."""

    name: str
    edges: int
    leaves: list[tuple[int, Tensor]]
    z: list[int]
    new: list[tuple[int, bool]]
    """Nodes that no edge led to before, and whether a node of this type could be z."""
    old: list[tuple[int, int]]
    """Nodes by their number."""


class GraphKind:
    """The graph above z as it was when it was searched. Nodes are numbered: losses first, then as edges lead to them.

    `shared`: the ids of the shared parameters.
    """

    def __init__(self, losses: Losses, heads: SeparateHeads, linear: LinearHeads | None, shared: Set[int]) -> None:
        self.searched = 1
        self._there = [loss is not None for loss in losses]
        self._shared, self._noted = shared, noted_types()
        self._leaves, self._linear = heads.leaves, linear
        self._unhooked = frozenset(id(leaf) for own in heads.leaves for leaf in own if type(leaf) in _PLAIN)
        self._z, self._selected = self._look(heads.representation), isinstance(heads.representation, Selected)
        above = {node: places for own in heads.entries for node, places in own.items()}
        nodes: list[Any] = [loss.grad_fn for loss in losses if loss is not None]
        numbers = {node: number for number, node in enumerate(nodes)}
        self._nodes = [_edges(node, above.get(node, []), numbers, nodes) for node in nodes]  # which grows meanwhile
        self._entries = [{numbers[node]: places for node, places in own.items()} for own in heads.entries]
        self._layers = [] if linear is None else [numbers[node] for node in linear.nodes]
        if linear is not None:
            linear.nodes.clear()  # they hold the graph

    def find(self, losses: Losses, shared: Set[int], find: FindRepresentation) -> Found | None:
        """What a search of this graph would find; None where it is of another kind."""
        if self._there != [loss is not None for loss in losses] or self._noted != noted_types():
            return None
        if self._shared is not shared and self._shared != shared:
            return None
        nodes: list[Any] = [loss.grad_fn for loss in losses if loss is not None]
        z = self._compare(nodes, through_selection(find) if self._selected else find)
        if z is None or len(set(nodes)) < len(nodes) or self._look(z) != self._z:
            return None
        linear = None if self._linear is None else self._linear.at([nodes[number] for number in self._layers])
        if self._linear is not None and (linear is None or not linear.worth_it(z.stored)):
            return None
        entries: list[dict[Node, list[int]]] = [{} for _ in losses]
        if linear is None or self._selected:  # else nobody asks for them
            entries = [{nodes[number]: places for number, places in own.items()} for own in self._entries]
        return SeparateHeads(z, entries, self._leaves, set(), {}, self._unhooked), linear

    def _compare(self, nodes: list[Any], find: FindRepresentation) -> Representation | None:
        """The one representation below these nodes, to which all nodes below them are added."""
        z: Representation | None = None
        at, at_output = None, 0
        for known, node in zip(self._nodes, nodes, strict=False):  # which grows while it is read
            if type(node).__name__ != known.name:
                return None
            below = node.next_functions  # once: it makes an object for every node
            if len(below) != known.edges:
                return None
            for place, leaf in known.leaves:
                if getattr(below[place][0], "variable", None) is not leaf:
                    return None
            for place in known.z:
                child, output = below[place]
                if child is not at or output != at_output:
                    found = find(child, output)
                    if found is None or (z is not None and found is not z):
                        return None
                    z, at, at_output = found, child, output
            for place, could_be_z in known.new:
                child, output = below[place]
                if could_be_z and find(child, output) is not None:
                    return None
                nodes.append(child)
            for place, number in known.old:
                if below[place][0] is not nodes[number]:
                    return None
        return z

    def _look(self, z: Representation) -> tuple[Any, ...]:
        """What of z the search depended on. Linear layers are not worth it where a batch has few samples."""
        stored = z.stored
        samples = stored.shape[0] if self._linear is None and stored.ndim == 2 else None
        return stored.ndim, stored.dtype, stored.device, type(z), samples


def _edges(node: Any, z: list[int], numbers: dict[Any, int], nodes: list[Any]) -> _Node:
    below = node.next_functions
    found = _Node(type(node).__name__, len(below), [], z, [], [])
    for place, (child, _) in enumerate(below):
        if child is None or place in z:
            continue
        if (leaf := leaf_of(child)) is not None:
            found.leaves.append((place, leaf))
        elif child in numbers:
            found.old.append((place, numbers[child]))
        else:
            numbers[child] = len(nodes)
            nodes.append(child)
            found.new.append((place, may_be_noted(child)))
    return found


class Kinds:
    """The kinds of graphs that one balancer has met lately."""

    def __init__(self) -> None:
        self._latest_first: list[GraphKind] = []

    def find(self, losses: Losses, shared: Set[int], find: FindRepresentation) -> Found | None:
        """What was found in graphs of this kind, if there were enough of them."""
        for kind in self._latest_first:
            if kind.searched >= SEARCHES and (found := kind.find(losses, shared, find)) is not None:
                return found
        return None

    def note(self, losses: Losses, found: Found, shared: Set[int], find: FindRepresentation) -> None:
        """Remember what a search has found, unless somebody waits for gradients at the nodes of the leaves."""
        heads, linear = found
        if has_node_hooks(get_gradient_edge(leaf).node for own in heads.leaves for leaf in own):
            return
        for kind in self._latest_first:
            if kind.find(losses, shared, find) is not None:
                kind.searched += 1
                return
        new = GraphKind(losses, heads, None if linear is None else linear.copy(), shared)
        self._latest_first = [new, *self._latest_first[: _MOST - 1]]


def has_node_hooks(nodes: Iterable[Node]) -> bool:
    """Whether a user has put a hook on one of these nodes.

    Autograd has no list of them, but the handle of a new hook refers to all hooks of its node.
    """
    for node in nodes:
        for register in (node.register_hook, node.register_prehook):
            handle = register(_nothing)
            hooks = handle.hooks_dict_ref()
            handle.remove()
            if hooks:
                return True
    return False


def _nothing(*gradients: Any) -> None:
    return None
