"""Heads that take z by linear layers of their own: the backward pass ends at the outputs of these layers.

Every task has a layer of few outputs, whose weight and bias serve nothing else. The gradients at z, and at the layers,
are products of what arrived there (`Factors`). Autocast may change the types of z, weight and bias on the way.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node

from excessmtl.gradients.at_representation import LeafGradient, Rows, by_task, sums_over_samples
from excessmtl.graph.plan import Explored
from excessmtl.graph.representation import Representation, nothing_below
from excessmtl.tensors import index_of
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


class Layer(NamedTuple):
    """Leaves whose gradients are some rows of those of all layers."""

    weight: Tensor
    bias: Tensor | None
    task: int
    """Whose layer it is; of one layer for all tasks, the first."""
    outputs: int
    """How many rows."""
    reached: bool = True
    """Whether a gradient arrived."""


@dataclass
class Factors:
    """Gradients at z through linear layers, as products of two small matrices that are not multiplied out.

    With D_i what arrives at the outputs of task i's layer and W_i its weight, the gradient of task i at z is D_i W_i,
    and that of the weight is D_i' z. One product of matrices gives the weighted sum over all tasks at z, and one the
    gradients of all weights. Autograd would take two products per layer.
    """

    representation: Representation
    left: Tensor
    """[samples, outputs of all layers]: the D_i side by side."""
    right: Tensor
    """[outputs of all layers, features]: the W_i as they were applied, after a cast by autocast for instance."""
    sizes: tuple[int, ...]
    """How many of the outputs belong to each task; 0 where a task is missing."""
    layers: Sequence[Layer]
    _counted: Tensor | None = field(default=None, init=False)
    """[outputs of all layers, 1] bool: those of tasks that take part, once that is known."""

    @property
    def tasks(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(len(self.sizes)))

    @property
    def stored(self) -> list[Tensor]:
        """The two factors."""
        return [self.left, self.right]

    @property
    def layout(self) -> Any:
        """Whose outputs are whose, and where gradients go."""
        return self.sizes, tuple([(id(weight), id(bias), *rest) for weight, bias, *rest in self.layers])

    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "Factors":
        """The same with other factors."""
        left, right = stored
        return replace(self, representation=self.representation.with_values(z), left=left, right=right)

    @property
    def _z(self) -> Tensor:
        return self.representation.stored

    @cached_property
    def _owners(self) -> Tensor:
        """[outputs of all layers]: whose they are."""
        owners = tuple(task for task, size in enumerate(self.sizes) for _ in range(size))
        return index_of(owners, self.left.device)

    @cached_property
    def _single(self) -> bool:
        """Whether every task has one output."""
        return set(self.sizes) == {1}

    def _per_output(self, values: Tensor) -> Tensor:
        """[m] -> [outputs of all layers]"""
        return values if self._single else values[self._owners]

    def magnitudes(self) -> Tensor:
        """[m]; a bound on the norms of all that is multiplied here: factors that are finite may still overflow."""
        norm: Callable[..., Tensor] = torch.linalg.vector_norm
        # For z the Euclidean norm, which is fast on a CPU: it is the largest of the three by far.
        each = (norm(self.left, 1, dim=0) * (norm(self.right, 1, dim=1) + norm(self._z))).float()
        if self._single:
            return each
        return each.new_zeros(len(self.sizes)).index_add(0, self._owners, each)

    def zero_unless(self, ok: Tensor) -> None:
        """Set both factors to zero for the tasks that are not `ok`: zero times NaN is NaN."""
        mine = self._per_output(ok)
        self._counted = mine.unsqueeze(1)
        self.left = torch.where(mine, self.left, 0)
        self.right = torch.where(self._counted, self.right, 0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One product, of the size of one layer, however many tasks there are."""
        return ((self.left * self._per_output(weights.to(self.left.dtype))) @ self.right).to(self._z.dtype)

    @property
    def tensors(self) -> Tensor:
        """[m, samples, features]: the factors multiplied out."""
        return _multiplied(self.left, self.right, self.sizes)

    def of_task(self, place: int) -> Tensor:
        """The gradient of one task, multiplied out."""
        return self.tensors[place]

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """As for `Rows`. Where tasks have one output each, no gradient of a sample is multiplied out."""
        left, right = self.left.float(), self.right.float() @ matrix
        if not self._single:
            return sums_over_samples(z, _multiplied(left, right, self.sizes))
        left = left.t()
        first = (left @ z).unsqueeze(2) * right.unsqueeze(1)
        return first, (left.square() @ z.square()) * right.square().sum(1, keepdim=True)

    def leaf_gradients(self, own: Tensor | None) -> list[LeafGradient]:
        """Those at the layers' weights and biases, times `own` [m] (None: 1)."""
        left = self.left if own is None else self.left * self._per_output(own.to(self.left.dtype))
        at_weights = left.t() @ self._z.to(left.dtype)
        if self._counted is not None:  # it may be z that is not finite
            at_weights = torch.where(self._counted, at_weights, 0)
        at_biases = left.sum(0)
        if self.layers and (dtype := self.layers[0].weight.dtype) != at_weights.dtype:  # one for all layers
            at_weights, at_biases = at_weights.to(dtype), at_biases.to(dtype)
        sizes = [layer.outputs for layer in self.layers]
        pairs: list[LeafGradient] = []
        parts = zip(self.layers, at_weights.split_with_sizes(sizes), at_biases.split_with_sizes(sizes), strict=True)
        for layer, at_weight, at_bias in parts:
            if layer.reached:
                pairs.append((layer.task, layer.weight, at_weight))
                if layer.bias is not None:
                    pairs.append((layer.task, layer.bias, at_bias))
        return pairs

    def own_gradients(self) -> list[LeafGradient]:
        """The same, of one layer for all tasks zero but for the task's own row."""
        if len(self.layers) != 1 or not self._single or len(self.sizes) == 1:
            return self.leaf_gradients(None)
        each = torch.eye(len(self.sizes), device=self.left.device)
        pairs = [(leaf, gradient) for _, leaf, gradient in self.leaf_gradients(None)]
        return [
            (task, leaf, gradient * row.view(-1, *(1 for _ in gradient.shape[1:])).to(gradient.dtype))
            for task, row in enumerate(each)
            for leaf, gradient in pairs
        ]

    def without_graph(self) -> "Factors":
        """The two factors, which are copies, and nothing that holds the graph or the weights."""
        return replace(self, representation=self.representation.without_graph(), layers=())


def _multiplied(left: Tensor, right: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """[m, samples, features]: the product for every task."""
    tasks, size = len(sizes), sizes[0]
    if set(sizes) == {1}:  # a product of matrices takes several times as long for vectors
        return left.T.contiguous()[:, :, None] * right[:, None]
    if set(sizes) == {size}:
        return torch.bmm(left.view(-1, tasks, size).transpose(0, 1), right.view(tasks, size, -1))
    lefts, rights = torch.split(left, [*sizes], dim=1), torch.split(right, [*sizes])
    return torch.stack([a @ b for a, b in zip(lefts, rights, strict=True)])


AtRepresentation = Rows | Factors


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

    def backward(self, losses: Losses) -> tuple[Factors, list[LeafGradient]]:
        """The gradients at z as factors, and those at leaves that the factors do not know."""
        present = [(task, layer) for task, layer in enumerate(self.layers) if layer is not None]
        leaves: list[list[Tensor]] = [[] for _ in losses]
        others: list[Tensor] = []
        reached = [reach.leaves for reach in self.graph.reaches]
        if sum(map(len, reached)) > sum([1 + (layer.bias is not None) for _, layer in present]):
            known = {id(leaf) for _, layer in present for leaf in (layer.weight, layer.bias)}
            leaves = [[leaf for key, leaf in own.items() if key not in known] for own in reached]
            others = [leaf for own in leaves for leaf in own]
        with hooks_disabled(others), nothing_below([self.representation] if others else ()):
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
        return Factors(z, left, right, sizes, rows), by_task(leaves, gradients[len(present) :]) if others else []


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
    layers = [layer_above(above, z, graph) for above in takers]
    present = [layer for layer in layers if layer is not None]
    if len(present) < sum(map(bool, takers)) or not fits(z.stored, present):
        return None
    # The factors must have fewer entries than the gradients at z.
    samples, features = z.stored.shape
    outputs = sum([len(layer.applied) for layer in present])
    worth_it = outputs * (samples + features) <= len(present) * samples * features
    return LinearHeads(z, graph, layers) if worth_it else None


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


def layer_above(above: Mapping[Node, Sequence[int]], z: Representation, graph: Explored) -> Linear | None:
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
