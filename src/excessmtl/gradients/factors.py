"""Gradients at z through linear layers, as products of two small matrices that are not multiplied out.

With D_i what arrives at the outputs of task i's layer and W_i its weight, the gradient of task i at z is D_i W_i, and
that of the weight is D_i' z. One product of matrices gives the weighted sum over all tasks at z, and one the gradients
of all weights. Autograd would take two products per layer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from excessmtl.graph.representation import Representation
from excessmtl.tensors import filled, index_of


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
    """`left[:, outputs of task i] @ right[outputs of task i]` is the gradient of task i."""

    representation: Representation
    left: Tensor
    """[samples, outputs of all layers]: what arrived at the outputs."""
    right: Tensor
    """[outputs of all layers, features]: the weights as they were applied, after a cast by autocast for instance."""
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

    def gated_sum(self, gates: Mapping[int, Tensor]) -> Tensor:
        """The sum of some of the gradients, by their places, each times a tensor of its own."""
        tensors = self.tensors
        return torch.stack([tensors[place] * gate.to(tensors.dtype) for place, gate in gates.items()]).sum(0)

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """The sums over samples. Where tasks have one output each, no gradient of a sample is multiplied out."""
        left, right = self.left.float(), self.right.float() @ matrix
        if not self._single:
            projected = _multiplied(left, right, self.sizes)
            return z.T @ projected, projected.square().sum(-1) @ z.square()
        left = left.t()
        first = (left @ z).unsqueeze(2) * right.unsqueeze(1)
        return first, (left.square() @ z.square()) * right.square().sum(1, keepdim=True)

    def leaf_gradients(self, own: Tensor | None) -> list[tuple[int, Tensor, Tensor]]:
        """(task, leaf, gradient) for the layers' weights and biases, times `own` [m] (None: 1)."""
        left = self.left if own is None else self.left * self._per_output(own.to(self.left.dtype))
        at_weights = left.t() @ self._z.to(left.dtype)
        if self._counted is not None:  # it may be z that is not finite
            at_weights = torch.where(self._counted, at_weights, self._zero)
        at_biases = left.sum(0)
        if self.layers and (dtype := self.layers[0].weight.dtype) != at_weights.dtype:  # one for all layers
            at_weights, at_biases = at_weights.to(dtype), at_biases.to(dtype)
        sizes = [layer.outputs for layer in self.layers]
        pairs: list[tuple[int, Tensor, Tensor]] = []
        parts = zip(self.layers, at_weights.split_with_sizes(sizes), at_biases.split_with_sizes(sizes), strict=True)
        for layer, at_weight, at_bias in parts:
            if layer.reached:
                pairs.append((layer.task, layer.weight, at_weight))
                if layer.bias is not None:
                    pairs.append((layer.task, layer.bias, at_bias))
        return pairs

    def own_gradients(self) -> list[tuple[int, Tensor, Tensor]]:
        """(task, leaf, gradient); of one layer for all tasks, zero but for the task's own row."""
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
