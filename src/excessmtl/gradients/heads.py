"""What lies above z: heads that meet each other nowhere, and the linear layers by which they take z.

Most multi-task models have such heads, and one search of the graph recognises them. Where every head takes z by a
linear layer of few outputs, whose weight and bias serve nothing else, the backward pass ends at the outputs of these
layers: the gradients at z, and at the layers, are products of what arrived there (`Factors`). Autocast may change the
types of z, weight and bias on the way.
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
from excessmtl.torch_private import (
    gradients_from,
    has_hooks,
    hooks_disabled,
    is_cast,
    is_transpose,
    leaf_of,
    linear_layer,
    release_saved,
    view_of,
)

Losses = Sequence[Tensor | None]
_DTYPES = {torch.float64, torch.float32, torch.bfloat16}
"""Not float16, which overflows where the check of the factors, which looks no further than fp32, sees nothing."""
_ORDINARY = (nn.Parameter, Tensor)
"""Not types of their own, which may do something else with a gradient."""


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

    heads: SeparateHeads
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
        if sum([len(own) for own in self.heads.leaves]) > sum([1 + (layer.bias is not None) for _, layer in present]):
            known = {id(leaf) for _, layer in present for leaf in (layer.weight, layer.bias)}
            leaves = [[leaf for leaf in own if id(leaf) not in known] for own in self.heads.leaves]
            others = [leaf for own in leaves for leaf in own]
        with _only_to(others, self.heads.representation) if others else nullcontext():
            # Autograd does not run the layers themselves, so this includes the hooks on their outputs.
            gradients = gradients_from(losses, [*[GradientEdge(layer.node, 0) for _, layer in present], *others])
        z, dtype = self.heads.representation, present[0][1].dtype
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


def find_linear_layers(heads: SeparateHeads) -> LinearHeads | None:
    """The layers by which the tasks take z; None where some task takes it in another way."""
    z = heads.representation.stored
    if z.ndim != 2:
        return None
    layers = [layer_above(above, heads) for above in heads.entries]
    present = [layer for layer in layers if layer is not None]
    if len(present) < sum(map(bool, heads.entries)) or not fits(z, present):
        return None
    # The factors must have fewer entries than the gradients at z.
    samples, features = z.shape
    outputs = sum([len(layer.applied) for layer in present])
    worth_it = outputs * (samples + features) <= len(present) * samples * features
    return LinearHeads(heads, layers) if worth_it else None


def fits(z: Tensor, layers: Sequence[Linear]) -> bool:
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


def layer_above(above: Mapping[Node, Sequence[int]], heads: SeparateHeads) -> Linear | None:
    """The linear layer by which nodes take z, given with the places of z among their inputs."""
    if len(above) != 1:
        return None
    ((node, positions),) = above.items()
    repeated = heads.repeated
    if node not in repeated and is_cast(node) and node in heads.users:
        node, position = heads.users[node]
        positions = [position]
    if node in repeated or (layer := linear_layer(node)) is None or positions != [layer[0]]:
        return None
    place, taken, applied = layer
    if taken is None or applied is None:  # not saved: the other one wants no gradient
        return None
    # This way does not pass the layer, so nobody who waits for a gradient in between would get it. Those at z will.
    own = heads.representation.edge is not None and taken.grad_fn is heads.representation.edge.node
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
