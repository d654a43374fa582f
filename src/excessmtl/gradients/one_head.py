"""One linear layer above z that serves all tasks, with an output for each: `nn.Linear(features, tasks)`.

A task takes its column, `outputs[:, task]`, as `losses.by_task` does, or the losses are the columns of a matrix that
was computed entry by entry.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from torch.autograd.graph import GradientEdge, Node

from excessmtl.gradients.at_representation import LeafGradient
from excessmtl.gradients.linear_heads import Factors, Layer, Linear, Losses, fits, layer_above
from excessmtl.graph.plan import Explored
from excessmtl.graph.representation import FindRepresentation, Representation
from excessmtl.torch_private import (
    arriving_shape,
    gradients_from,
    is_cast,
    is_unbind,
    leaf_of,
    linear_layer,
    selection,
    sums_over_samples,
    works_entry_by_entry,
)

_Columns = tuple[Node, list[int | None]]
"""The node of one layer for all tasks, and the column of each task (None: a missing one)."""


@dataclass(frozen=True)
class OneHead:
    """The layer. Its outputs are those of the tasks, in their order."""

    representation: Representation
    layer: Linear

    @property
    def nodes(self) -> list[Node]:
        """That of the layer."""
        return [self.layer.node]

    def backward(self, losses: Losses) -> tuple[Factors, list[LeafGradient]]:
        """The gradients at z as factors; there are no leaves that the factors do not know."""
        (arrived,) = gradients_from(losses, [GradientEdge(self.layer.node, 0)])
        z, (_, weight, bias, applied) = self.representation, self.layer
        left = z.stored.new_zeros(len(z.stored), len(applied)) if arrived is None else arrived
        layers = [Layer(weight, bias, 0, len(applied))]
        factors = left.to(self.layer.dtype), applied.detach().to(self.layer.dtype)
        return Factors(z, *factors, (1,) * len(losses), layers), []


def find_one_head(losses: Losses, shared: Set[int], find: FindRepresentation) -> OneHead | None:
    """The layer, or None where the graph is of any other kind. `shared`: the ids of the shared parameters."""
    taken = _columns_of_matrix(losses) or _columns_taken(losses, find)
    if taken is None:
        return None
    node, columns = taken
    if any(column not in (None, task) for task, column in enumerate(columns)):
        return None
    for place, (child, output) in enumerate(node.next_functions):
        taker, position, users = node, place, {}
        if child is not None and is_cast(child):
            taker, position, users = child, 0, {child: (node, place)}
            child, output = child.next_functions[0]
        z = None if child is None else find(child, output)
        if z is None:
            continue
        layer = layer_above({taker: [position]}, z, Explored(users=users))
        if layer is None or len(layer.applied) != len(losses) or not fits(z.stored, [layer]):
            return None
        return None if id(layer.weight) in shared or id(layer.bias) in shared else OneHead(z, layer)
    return None


def _columns_taken(losses: Losses, find: FindRepresentation) -> _Columns | None:
    """Where every task selects one column of a linear layer's output, and tasks meet nowhere above it."""
    owner: dict[Node, int] = {}
    layer: Node | None = None
    columns: list[int | None] = []
    for task, loss in enumerate(losses):
        columns.append(None)
        if loss is None:
            continue
        if loss.grad_fn is None or loss.grad_fn in owner:
            return None
        owner[loss.grad_fn], stack = task, [loss.grad_fn]
        while stack:
            node = stack.pop()
            where, below = selection(node), node.next_functions[0][0] if node.next_functions else None
            if where is not None and below is not None and linear_layer(below) is not None:
                if where[0] != 1 or layer not in (None, below) or columns[task] not in (None, where[1]):
                    return None
                layer, columns[task] = below, where[1]
                continue
            for child, output in node.next_functions:
                if child is None or owner.get(child) == task:
                    continue
                if child in owner or leaf_of(child) is not None or find(child, output) is not None:
                    return None
                owner[child] = task
                stack.append(child)
        if columns[task] is None:
            return None
    return None if layer is None else (layer, columns)


def _columns_of_matrix(losses: Losses) -> _Columns | None:
    """Where the losses are the means over the columns of a matrix, which a layer's outputs gave entry by entry."""
    top = losses[0].grad_fn if losses[0] is not None else None
    if top is None or not is_unbind(top):
        return None
    if any(loss is None or loss.grad_fn is not top or loss.output_nr != task for task, loss in enumerate(losses)):
        return None
    layer: Node | None = None
    stack: list[Any] = [top.next_functions[0][0]]
    seen = set(stack)
    while stack:
        node = stack.pop()
        shape = None if node is None else arriving_shape(node)
        if shape is None or not 1 <= len(shape) <= 2 or shape[-1] != len(losses):
            return None
        if len(shape) == 2 and linear_layer(node) is not None:
            if layer not in (None, node):
                return None
            layer = node
            continue
        if not sums_over_samples(node) and not works_entry_by_entry(node):
            return None
        below = [child for child, _ in node.next_functions if child is not None and child not in seen]
        seen.update(below)
        stack.extend(below)
    return None if layer is None else (layer, list(range(len(losses))))
