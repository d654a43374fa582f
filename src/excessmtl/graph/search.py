"""What each loss reaches in the autograd graph: leaves of its own, representations, shared parameters around them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import Node

from excessmtl.graph.representation import FindRepresentation, Representation
from excessmtl.torch_private import leaf_of


@dataclass(frozen=True)
class Reach:
    """What lies below a loss, down to the representations."""

    leaves: dict[int, Tensor] = field(default_factory=dict)
    """Leaves outside `shared`, by id."""
    representations: dict[int, Representation] = field(default_factory=dict)
    """By id."""
    shared: bool = False
    """Whether a shared parameter is reached without passing a representation."""


_NOTHING = Reach()


def _merged(parts: list[Reach]) -> Reach:
    parts = [part for part in parts if part is not _NOTHING]
    if len(parts) <= 1:
        return parts[0] if parts else _NOTHING
    merged = Reach(shared=any(part.shared for part in parts))
    for part in parts:
        merged.leaves.update(part.leaves)
        merged.representations.update(part.representations)
    return merged


def explore(losses: Sequence[Tensor | None], shared: Set[int], find: FindRepresentation) -> tuple[list[Reach], bool]:
    """The reach of each loss, and whether two losses share graph nodes above the representations.

    Every node is visited once for all losses; below a representation nothing is visited. `shared`: the ids of the
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
                if (z := find(child, output)) is not None:
                    parts.append(Reach(representations={id(z): z}))
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
