"""What each loss reaches in the autograd graph: leaves of its own, cuts, shared parameters around the cuts."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from excessmtl.gradients.cut import Cut, FindCut


@dataclass(frozen=True)
class Reach:
    """What lies below a loss, down to the cuts."""

    leaves: dict[int, Tensor] = field(default_factory=dict)
    """Leaves outside `shared`, by id."""
    cuts: dict[int, Cut] = field(default_factory=dict)
    shared: bool = False
    """Whether a shared parameter is reached without crossing a cut."""


_NOTHING = Reach()
_AT_LEAF = type(get_gradient_edge(torch.zeros((), requires_grad=True)).node)
"""The kind of node at which the graph ends."""


def _merged(parts: list[Reach]) -> Reach:
    parts = [part for part in parts if part is not _NOTHING]
    if len(parts) <= 1:
        return parts[0] if parts else _NOTHING
    merged = Reach(shared=any(part.shared for part in parts))
    for part in parts:
        merged.leaves.update(part.leaves)
        merged.cuts.update(part.cuts)
    return merged


def leaf_of(node: Node) -> Tensor | None:
    """The leaf at which the graph ends here, if it does."""
    return node.variable if type(node) is _AT_LEAF else None  # type: ignore[attr-defined]


def explore(losses: Sequence[Tensor | None], shared: Set[int], find_cut: FindCut) -> tuple[list[Reach], bool]:
    """The reach of each loss, and whether two losses share graph nodes above the cuts.

    Every node is visited once for all losses together; below a cut nothing is visited at all. `shared`: the ids of the
    shared parameters.
    """
    below: dict[Node, Reach] = {}
    visitor: dict[Node, int] = {}
    overlap = False

    def visit(root: Node, task: int) -> None:
        nonlocal overlap
        stack = [root]
        while stack:
            node = stack[-1]
            parts, pending = [], []
            leaf = leaf_of(node)
            if leaf is not None:
                own = id(leaf) not in shared
                parts.append(Reach(leaves={id(leaf): leaf}) if own else Reach(shared=True))
            for child, output in node.next_functions:
                if child is None:
                    continue
                if (cut := find_cut(child, output)) is not None:
                    parts.append(Reach(cuts={id(cut): cut}))
                elif child in below:
                    parts.append(below[child])
                    overlap = overlap or (visitor[child] != task and leaf_of(child) is None)
                else:
                    pending.append(child)
            if pending:
                stack.extend(pending)
            else:
                below[node], visitor[node] = _merged(parts), task
                stack.pop()

    reaches = []
    for task, loss in enumerate(losses):
        if loss is None or loss.grad_fn is None:
            reaches.append(_NOTHING)
            continue
        if loss.grad_fn in below:
            overlap = True
        else:
            visit(loss.grad_fn, task)
        reaches.append(below[loss.grad_fn])
    return reaches, overlap


def entries(loss: Tensor, cuts: Iterable[Cut]) -> Iterator[tuple[Node, list[tuple[int, Cut]]]]:
    """The nodes above the cuts that take one of them as an input, and the places of these inputs."""
    stops = {(cut.edge.node, cut.edge.output_nr): cut for cut in cuts if cut.edge is not None}
    stack: list[Any] = [loss.grad_fn]
    seen = set(stack)
    while stack:
        node = stack.pop()
        taken = [(place, stops[end]) for place, end in enumerate(node.next_functions) if end in stops]
        if taken:
            yield node, taken
        for child, output in node.next_functions:
            if child is not None and child not in seen and (child, output) not in stops:
                seen.add(child)
                stack.append(child)


def _nodes_below(cuts: Iterable[Cut]) -> Iterator[Node]:
    return _nodes_from([cut.edge.node for cut in cuts if cut.edge is not None])


def _nodes_from(stack: list[Node]) -> Iterator[Node]:
    seen = set(stack)
    while stack:
        node = stack.pop()
        yield node
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                stack.append(child)


def leaves_below(cuts: Iterable[Cut]) -> list[Tensor]:
    """All leaves the graph below the cuts leads to."""
    return [leaf for node in _nodes_below(cuts) if (leaf := leaf_of(node)) is not None]


def leaves_of(losses: Iterable[Tensor | None]) -> list[Tensor]:
    """All leaves the losses were computed from."""
    roots = [loss.grad_fn for loss in losses if isinstance(loss, Tensor) and loss.grad_fn is not None]
    return [leaf for node in _nodes_from(roots) if (leaf := leaf_of(node)) is not None]


def kinds_below(cut: Cut, shared: Set[int]) -> frozenset[str] | None:
    """The kinds of nodes below the cut if they lead to shared parameters alone, and to one at least; else None.

    `shared`: the ids of the shared parameters.
    """
    kinds, below = set(), set()
    for node in _nodes_below([cut]):
        kinds.add(type(node).__name__)
        if (leaf := leaf_of(node)) is not None:
            below.add(id(leaf))
    return frozenset(kinds) if below and below <= shared else None


def reaches_any(cuts: Iterable[Cut], parameters: Iterable[Tensor]) -> bool:
    """Whether the graph below the cuts leads to one of `parameters`, or to a checkpoint that hides what it holds."""
    wanted = {id(parameter) for parameter in parameters}
    return any(
        id(leaf_of(node)) in wanted or type(node).__name__ == "CheckpointFunctionBackward"
        for node in _nodes_below(cuts)
    )
