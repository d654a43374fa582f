"""Visiting the nodes of autograd's graph: those above the representations, those below, and the leaves at its ends."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import Node

from excessmtl.graph.representation import Representation
from excessmtl.torch_private import leaf_of


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
