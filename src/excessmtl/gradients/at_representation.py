"""The gradients of tasks at one tensor z of the representation: dense rows, or factors of linear heads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from excessmtl.graph.representation import Representation
from excessmtl.tensors import filled, index_of, magnitude, zero_unless

LeafGradient = tuple[int, Tensor, Tensor]
"""A task, a leaf, and the gradient of the task there."""


@dataclass(frozen=True)
class Stacked:
    """k tensors of one shape in one, so that checking, masking and weighing them takes few operations.

    Memory is laid out as in theirs: channels last stays channels last.
    """

    flat: Tensor
    """[k, n], in the order of memory."""
    shape: torch.Size
    order: tuple[int, ...]
    """Dimensions from the outermost to the innermost in memory."""

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> "Stacked":
        """Copies of these."""
        order = memory_order(tensors[0])
        ordered = tensors if _usual(order) else [tensor.permute(order) for tensor in tensors]
        return Stacked(torch.stack([*ordered]).view(len(tensors), -1), tensors[0].shape, order)

    @cached_property
    def tensors(self) -> Tensor:
        """[k, ...]: in their original shape."""
        return self.shaped(self.flat)

    def shaped(self, rows: Tensor) -> Tensor:
        """[n] or [k, n] in the order of memory -> the original shape."""
        lead = rows.ndim - 1
        if _usual(self.order):
            return rows.reshape((*rows.shape[:lead], *self.shape))
        sizes = [self.shape[dim] for dim in self.order]
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return rows.reshape(*rows.shape[:lead], *sizes).permute(*range(lead), *(lead + place for place in back))

    def magnitudes(self) -> Tensor:
        """[k] fp32 norms; not finite where an entry is not."""
        return magnitude(self.flat, dim=1)

    def zero_unless(self, ok: Tensor) -> None:
        """Set the tensors to zero where not `ok` [k]."""
        zero_unless(ok.unsqueeze(1), self.flat)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of all, times `weights` [k].

        The last one first, as autograd adds up the gradients of heads that were computed in task order: with equal
        weights it is the gradient of the sum of the losses, to the bit. Half precision is added up in fp32.
        """
        wide = torch.promote_types(self.flat.dtype, torch.float32)
        weights = weights.to(wide)
        rows = self.flat.unbind()
        total = rows[-1].to(wide) * weights[-1]
        for place in reversed(range(len(rows) - 1)):
            total.addcmul_(rows[place], weights[place])
        return self.shaped(total.to(self.flat.dtype))


def memory_order(tensor: Tensor) -> tuple[int, ...]:
    """Its dimensions from the outermost to the innermost in memory."""
    strides = tensor.stride()
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))


def _usual(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))


@dataclass(frozen=True)
class Rows(Stacked):
    """Dense gradients of k tasks, one after the other in memory."""

    representation: Representation
    tasks: tuple[int, ...]
    """Whose gradients these are."""

    @property
    def stored(self) -> list[Tensor]:
        """The tensors it is made of, apart from z: a CUDA graph replaces them by others."""
        return [self.flat]

    @property
    def layout(self) -> Any:
        """Hashable; equal for what is computed by the same operations on tensors of the same shapes."""
        return self.tasks, self.shape, self.order

    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "Rows":
        """The same made of other tensors."""
        return replace(self, flat=stored[0], representation=self.representation.with_values(z))

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """For gradients [k, samples, features], times the matrix, and z [samples, width], in fp32.

        Both are sums over samples: [k, width, columns] of z' g, and [k, width] of z^2 |g|^2.
        """
        return _sums_over_samples(z, self.tensors.float() @ matrix)

    def leaf_gradients(self, own: Tensor | None) -> list[LeafGradient]:
        """None: no gradient of a leaf follows from dense gradients at z."""
        return []

    def own_gradients(self) -> list[LeafGradient]:
        """None."""
        return []

    def without_graph(self) -> "Rows":
        """The same gradients, which are copies already, without the autograd graph."""
        return replace(self, representation=self.representation.without_graph())


class RowsInTheMaking:
    """Takes gradients as they arrive at z: each is copied at once, before autograd needs its memory."""

    def __init__(self, representation: Representation, tasks: Sequence[int]) -> None:
        z = representation.stored
        flat = z.new_empty(len(tasks), z.numel())
        self._rows = Rows(flat, z.shape, memory_order(z), representation, tuple(tasks))
        self._places = {task: place for place, task in enumerate(tasks)}
        self._arrived: set[int] = set()

    def add(self, task: int, gradient: Tensor) -> None:
        """Copy a task's gradient, or add it to what has arrived for the task before."""
        row = self._rows.tensors[self._places[task]]
        if task in self._arrived:
            row.add_(gradient)
        else:
            self._arrived.add(task)
            row.copy_(gradient)

    def finished(self) -> Rows:
        """All rows; zero where nothing arrived."""
        for task, place in self._places.items():
            if task not in self._arrived:
                self._rows.flat[place].zero_()
        return self._rows

    def arrived(self) -> Rows:
        """The rows of the tasks for which something arrived, and no others."""
        if len(self._arrived) == len(self._places):
            return self._rows
        tasks = tuple(task for task in self._places if task in self._arrived)
        return replace(self._rows, flat=self._rows.flat[[self._places[task] for task in tasks]], tasks=tasks)


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

    @property
    def _zero(self) -> Tensor:
        return filled(0, 1, self.left.device).to(self.left.dtype)

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
        self.left = torch.where(mine, self.left, self._zero)
        self.right = torch.where(self._counted, self.right, self._zero)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One product, of the size of one layer, however many tasks there are."""
        return ((self.left * self._per_output(weights.to(self.left.dtype))) @ self.right).to(self._z.dtype)

    @property
    def tensors(self) -> Tensor:
        """[m, samples, features]: the factors multiplied out."""
        return _multiplied(self.left, self.right, self.sizes)

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """As for `Rows`. Where tasks have one output each, no gradient of a sample is multiplied out."""
        left, right = self.left.float(), self.right.float() @ matrix
        if not self._single:
            return _sums_over_samples(z, _multiplied(left, right, self.sizes))
        left = left.t()
        first = (left @ z).unsqueeze(2) * right.unsqueeze(1)
        return first, (left.square() @ z.square()) * right.square().sum(1, keepdim=True)

    def leaf_gradients(self, own: Tensor | None) -> list[LeafGradient]:
        """Those at the layers' weights and biases, times `own` [m] (None: 1)."""
        left = self.left if own is None else self.left * self._per_output(own.to(self.left.dtype))
        at_weights = left.t() @ self._z.to(left.dtype)
        if self._counted is not None:  # it may be z that is not finite
            at_weights = torch.where(self._counted, at_weights, self._zero)
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


AtRepresentation = Rows | Factors


def _multiplied(left: Tensor, right: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """[m, samples, features]: the product for every task."""
    tasks, size = len(sizes), sizes[0]
    if set(sizes) == {1}:  # a product of matrices takes several times as long for vectors
        return left.T.contiguous()[:, :, None] * right[:, None]
    if set(sizes) == {size}:
        return torch.bmm(left.view(-1, tasks, size).transpose(0, 1), right.view(tasks, size, -1))
    lefts, rights = torch.split(left, [*sizes], dim=1), torch.split(right, [*sizes])
    return torch.stack([a @ b for a, b in zip(lefts, rights, strict=True)])


def _sums_over_samples(z: Tensor, projected: Tensor) -> tuple[Tensor, Tensor]:
    return z.T @ projected, projected.square().sum(-1) @ z.square()


def gated_sum(part: AtRepresentation, gates: Mapping[int, Tensor]) -> Tensor:
    """The sum of some of the gradients, by their places, each times a tensor of its own."""
    tensors = part.tensors
    return torch.stack([tensors[place] * gate.to(tensors.dtype) for place, gate in gates.items()]).sum(0)
