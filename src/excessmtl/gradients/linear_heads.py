"""Heads that take z by linear layers: the backward pass ends at the outputs of these layers.

The gradients at z, and at the layers, are products of what arrived there (`Factors`). Either every task has a layer of
few outputs of its own, whose weight and bias serve nothing else. Or one layer serves all tasks, with an output for
each, `nn.Linear(features, tasks)`: a task takes its column, `outputs[:, task]`, as `losses.by_task` does, or the losses
are the columns of a matrix that was computed entry by entry. Autocast may change the types of z, weight and bias on the
way.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node

from excessmtl.gradients.at_representation import Factors, Layer
from excessmtl.gradients.own_leaves import Pairs, by_task
from excessmtl.graph.representation import FindRepresentation, Representation, nothing_below
from excessmtl.graph.search import Explored
from excessmtl.torch_private import (
    arriving_shape,
    gradients_from,
    has_hooks,
    hooks_disabled,
    is_cast,
    is_transpose,
    is_unbind,
    leaf_of,
    linear_layer,
    release_saved,
    selection,
    sums_over_samples,
    view_of,
    works_entry_by_entry,
)

Losses = Sequence[Tensor | None]
_DTYPES = {torch.float64, torch.float32, torch.bfloat16}
"""Not float16, which overflows where the check of the factors, which looks no further than fp32, sees nothing."""
_ORDINARY = (nn.Parameter, Tensor)
"""Not types of their own, which may do something else with a gradient."""
_Columns = tuple[Node, list[int | None]]
"""The node of one layer for all tasks, and the column of each task (None: a missing one)."""


class Linear(NamedTuple):
    """A layer `z @ weight.T (+ bias)` whose weight and bias serve nothing else."""

    node: Node
    weight: Tensor
    """[outputs, features]"""
    bias: Tensor | None
    applied: Tensor
    """[outputs, features]: the weight as it was applied. The weight itself, unless it was cast on the way."""

    @property
    def dtype(self) -> torch.dtype:
        """In which products are computed: the wider of that of the weight and that in which it was applied."""
        return torch.promote_types(self.weight.dtype, self.applied.dtype)


@dataclass(frozen=True)
class LinearHeads:
    """The layers by which tasks take z."""

    representation: Representation
    graph: Explored
    layers: Sequence[Linear | None]
    """Per task; None where the task is missing."""

    @property
    def nodes(self) -> list[Node]:
        """Those of the layers."""
        return [layer.node for layer in self.layers if layer is not None]

    def backward(self, losses: Losses) -> tuple[Factors, Pairs]:
        """The gradients at z as factors, and those at leaves that the factors do not know."""
        present = [(task, layer) for task, layer in enumerate(self.layers) if layer is not None]
        leaves: list[list[Tensor]] = [[] for _ in losses]
        others: list[Tensor] = []
        reached = [reach.leaves for reach in self.graph.reaches]
        if sum(map(len, reached)) > sum([1 + (layer.bias is not None) for _, layer in present]):
            known = {id(leaf) for _, layer in present for leaf in (layer.weight, layer.bias)}
            leaves = [[leaf for key, leaf in own.items() if key not in known] for own in reached]
            others = [leaf for own in leaves for leaf in own]
        with _only_to(others, self.representation) if others else nullcontext():
            # Autograd does not run the layers themselves, so this includes the hooks on their outputs.
            gradients = gradients_from(losses, [*[GradientEdge(layer.node, 0) for _, layer in present], *others])
        z, dtype = self.representation, present[0][1].dtype
        sizes = tuple([0 if layer is None else layer.applied.shape[0] for layer in self.layers])
        rows, columns = [], []
        for (task, layer), gradient in zip(present, gradients, strict=False):
            rows.append(Layer(layer.weight, layer.bias, task, sizes[task], gradient is not None))
            columns.append(z.stored.new_zeros(len(z.stored), sizes[task]) if gradient is None else gradient)
        with torch.no_grad():
            left = torch.cat(columns, dim=1).to(dtype)
            right = torch.cat([layer.applied for _, layer in present]).to(dtype)
        return Factors(z, left, right, sizes, rows), by_task(leaves, gradients[len(present) :]) if others else ()


@contextmanager
def _only_to(leaves: Sequence[Tensor], z: Representation) -> Iterator[None]:
    """Inside, the hooks of the leaves are disabled, and no gradient passes z."""
    with hooks_disabled(leaves), nothing_below([z]):
        yield


def release_linear_layers(losses: Sequence[Tensor]) -> None:
    """Free what the linear layers below these losses have saved, as autograd does for nodes that it runs."""
    stack: list[Any] = [loss.grad_fn for loss in losses]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if release_saved(node):
            continue
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                stack.append(child)


def find_linear_heads(z: Representation, graph: Explored) -> LinearHeads | None:
    """The layers by which the tasks take z; None where some task takes it in another way."""
    if z.stored.ndim != 2:
        return None
    takers = [reach.takers for reach in graph.reaches]
    layers = [_layer_above(above, z, graph) for above in takers]
    present = [layer for layer in layers if layer is not None]
    if len(present) < sum(map(bool, takers)) or not _fits(z.stored, present):
        return None
    # The factors must have fewer entries than the gradients at z.
    samples, features = z.stored.shape
    outputs = sum([len(layer.applied) for layer in present])
    worth_it = outputs * (samples + features) <= len(present) * samples * features
    return LinearHeads(z, graph, layers) if worth_it else None


def _fits(z: Tensor, layers: Sequence[Linear]) -> bool:
    """Whether these factors can be multiplied: matrices of one kind on one device."""
    device, dtypes = z.device, (layers[0].weight.dtype, layers[0].applied.dtype)
    if z.ndim != 2 or not _DTYPES.issuperset((z.dtype, *dtypes)):
        return False
    for _, weight, bias, applied in layers:
        if (weight.dtype, applied.dtype) != dtypes or weight.device != device or applied.device != device:
            return False
        if bias is not None and (bias.dtype not in _DTYPES or bias.device != device):
            return False
    return True


def _layer_above(above: Mapping[Node, Sequence[int]], z: Representation, graph: Explored) -> Linear | None:
    """The linear layer by which nodes take z, given with the places of z among their inputs."""
    if len(above) != 1:
        return None
    ((node, positions),) = above.items()
    repeated = graph.repeated
    if node not in repeated and is_cast(node) and node in graph.users:
        node, position = graph.users[node]
        positions = [position]
    if node in repeated or (layer := linear_layer(node)) is None or positions != [layer[0]]:
        return None
    place, taken, applied = layer
    if taken is None or applied is None:  # not saved: the other one wants no gradient
        return None
    # This way does not pass the layer, so nobody who waits for a gradient in between would get it. Those at z will.
    own = z.edge is not None and taken.grad_fn is z.edge.node
    if has_hooks(applied) or has_hooks(view_of(applied)) or (not own and has_hooks(taken)):
        return None
    inputs = [child for child, _ in node.next_functions]
    transposed = inputs[place + 1]
    if transposed is None or transposed in repeated or not is_transpose(transposed):
        return None
    weight = _parameter(transposed.next_functions[0][0], repeated)
    if weight is None or weight.shape != applied.shape[::-1]:
        return None
    itself = weight.data_ptr() == applied.data_ptr() and weight.dtype == applied.dtype
    applied = weight if itself else applied.t()
    if place == 0 or inputs[0] is None:
        return Linear(node, weight, None, applied)
    bias = _parameter(inputs[0], repeated)
    same = bias is not None and bias.shape == (len(applied),) and bias.dtype == weight.dtype
    return Linear(node, weight, bias, applied) if same else None


def _parameter(node: Node | None, repeated: Collection[Node]) -> Tensor | None:
    """The leaf at which the graph ends here, if it is an ordinary one that serves nothing else."""
    if node is not None and node not in repeated and is_cast(node):
        node = node.next_functions[0][0]
    leaf = None if node is None or node in repeated else leaf_of(node)
    return leaf if leaf is not None and type(leaf) in _ORDINARY else None


@dataclass(frozen=True)
class OneHead:
    """The layer. Its outputs are those of the tasks, in their order."""

    representation: Representation
    layer: Linear

    @property
    def nodes(self) -> list[Node]:
        """That of the layer."""
        return [self.layer.node]

    def backward(self, losses: Losses) -> tuple[Factors, Pairs]:
        """The gradients at z as factors; there are no leaves that the factors do not know."""
        (arrived,) = gradients_from(losses, [GradientEdge(self.layer.node, 0)])
        z, (_, weight, bias, applied) = self.representation, self.layer
        left = z.stored.new_zeros(len(z.stored), len(applied)) if arrived is None else arrived
        layers = [Layer(weight, bias, 0, len(applied))]
        factors = left.to(self.layer.dtype), applied.detach().to(self.layer.dtype)
        return Factors(z, *factors, (1,) * len(losses), layers), ()


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
        layer = _layer_above({taker: [position]}, z, Explored(users=users))
        if layer is None or len(layer.applied) != len(losses) or not _fits(z.stored, [layer]):
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
