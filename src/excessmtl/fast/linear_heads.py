"""Heads that take z by a linear layer of few outputs: gradients at z as products of two small matrices.

Applies where every task does so, by a layer whose weight and bias serve nothing else. The backward pass then ends at
the outputs of these layers: with D_i what arrives there and W_i the weight, the gradient of task i at z is D_i W_i, and
is never multiplied out. One product of matrices gives the weighted sum over all tasks, and one the gradients of all
weights. Autograd would take two products per layer. Autocast may change the types of z, weight and bias on the way.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from excessmtl.engine.private_torch import hooks_disabled, release_saved
from excessmtl.engine.tensors import filled, index_of
from excessmtl.fast.batched import AtRepresentation
from excessmtl.fast.separate_heads import Losses, Pairs, by_task, gradients_from


class Linear(NamedTuple):
    """A layer `z @ weight.T (+ bias)` whose weight and bias serve nothing else."""

    node: Node
    weight: Tensor
    """[outputs, features]"""
    bias: Tensor | None
    applied: Tensor
    """[outputs, features]: the weight as it was applied. The weight itself, unless it was cast on the way."""


@dataclass(frozen=True)
class LinearHeads:
    """The layers by which tasks take z."""

    nodes: list[Node]
    """Of the layers there are, in the order of the tasks."""
    applied: list[Tensor]
    """Their weights as they were applied: [outputs, features]."""
    pairs: Sequence[tuple[Tensor, Tensor | None] | None]
    """Per task: weight and bias; None where the task is missing."""
    others: list[list[Tensor]]
    """Per task: its leaves that are not of the layer."""
    sizes: tuple[int, ...]
    """Per task: the outputs of its layer; 0 where the task is missing."""
    dtype: torch.dtype
    """In which everything is computed: the wider of that of the weights and that in which they were applied."""

    @classmethod
    def of(cls, found: Sequence[Linear | None], leaves: Sequence[Sequence[Tensor]]) -> "LinearHeads":
        """`found`, `leaves`: per task, the layer and all leaves."""
        layers = [layer for layer in found if layer is not None]
        known = {id(leaf) for layer in layers for leaf in (layer.weight, layer.bias)}
        return cls(
            [layer.node for layer in layers],
            [layer.applied for layer in layers],
            [None if layer is None else (layer.weight, layer.bias) for layer in found],
            [[leaf for leaf in own if id(leaf) not in known] for own in leaves],
            tuple([0 if layer is None else layer.applied.shape[0] for layer in found]),
            torch.promote_types(layers[0].weight.dtype, layers[0].applied.dtype),
        )

    def worth_it(self, z: Tensor) -> bool:
        """Whether the factors have fewer entries than the gradients at z."""
        samples, features = z.shape
        return sum(self.sizes) * (samples + features) <= len(self.applied) * samples * features

    def backward(self, losses: Losses, z: Tensor) -> tuple["Factored", Pairs]:
        """The gradients at z as factors, and those at leaves that the factors do not know."""
        others = [leaf for own in self.others for leaf in own]
        with hooks_disabled(others) if others else nullcontext():
            # Autograd does not pass the layers themselves, so what is found includes the hooks on their outputs.
            found = gradients_from(losses, [*[GradientEdge(node, 0) for node in self.nodes], *others])
        remaining = iter(found)
        arrived = [None if pair is None else next(remaining) for pair in self.pairs]
        leaves = [None if one is None else pair for pair, one in zip(self.pairs, arrived, strict=True)]
        factored = Factored(z, arrived, self.applied, self.sizes, leaves, self.dtype)
        return factored, by_task(self.others, found[len(self.nodes) :])


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


@dataclass
class Factored(AtRepresentation):
    """Gradients at z through linear layers, and at the layers' weights and biases."""

    z: Tensor
    """[samples, features]"""
    arrived: Sequence[Tensor | None]
    """Per task: [samples, outputs], what arrived at the output of its layer; None where nothing did."""
    applied: Sequence[Tensor]
    """Of the layers there are: [outputs, features], the weight as it was applied."""
    sizes: tuple[int, ...]
    """Outputs of each task's layer; 0 where the task is missing."""
    leaves: Sequence[tuple[Tensor, Tensor | None] | None]
    """Weight and bias of each task's layer; None where there is none, or no gradient arrived."""
    dtype: torch.dtype
    """In which everything is computed: the wider of that of the weights and that in which they were applied."""
    _rows: Tensor | None = field(default=None, init=False)
    """[outputs of all layers, 1] bool: which of them count, once that is known."""

    @cached_property
    def left(self) -> Tensor:
        """[samples, outputs of all layers]: what arrived at the outputs."""
        pairs = zip(self.arrived, self.sizes, strict=True)
        found = [self.z.new_zeros(self.z.shape[0], size) if one is None else one for one, size in pairs]
        return torch.cat(found, dim=1).to(self.dtype)

    @cached_property
    def right(self) -> Tensor:
        """[outputs of all layers, features]: the weights as they were applied."""
        with torch.no_grad():
            return torch.cat([*self.applied]).to(self.dtype)

    @property
    def stored(self) -> list[Tensor]:
        """What arrived, and the weights."""
        return [*(one for one in self.arrived if one is not None), *self.applied]

    @property
    def layout(self) -> Any:
        """Whose columns are whose, and where gradients go."""
        return self.sizes, tuple([None if pair is None else (id(pair[0]), id(pair[1])) for pair in self.leaves])

    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "Factored":
        """The same with other factors."""
        remaining = iter(stored)
        arrived = [None if one is None else next(remaining) for one in self.arrived]
        return replace(self, z=z, arrived=arrived, applied=list(remaining))

    @property
    def _owners(self) -> Tensor:
        """[outputs of all layers]: whose they are."""
        owners = tuple(task for task, size in enumerate(self.sizes) for _ in range(size))
        return index_of(owners, self.left.device)

    @property
    def _zero(self) -> Tensor:
        return filled(0, 1, self.z.device).to(self.dtype)

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
        each = (norm(self.left, 1, dim=0) * (norm(self.right, 1, dim=1) + norm(self.z))).float()
        if self._single:
            return each
        return each.new_zeros(len(self.sizes)).index_add(0, self._owners, each)

    def zero_unless(self, ok: Tensor) -> None:
        """Set both factors to zero for the tasks that are not `ok`: zero times NaN is NaN."""
        mine = self._per_output(ok)
        self._rows = mine.unsqueeze(1)
        self.left = torch.where(mine, self.left, self._zero)
        self.right = torch.where(self._rows, self.right, self._zero)

    def combined(self, weights: Tensor) -> Tensor:
        """The weighted sum: one product, of the size of one layer, however many tasks there are."""
        return ((self.left * self._per_output(weights.to(self.dtype))) @ self.right).to(self.z.dtype)

    @property
    def tensors(self) -> Tensor:
        """[m, samples, features]: the factors multiplied out."""
        return _multiplied(self.left, self.right, self.sizes)

    def times(self, matrix: Tensor) -> Tensor:
        """[m, samples, columns]: every gradient times a matrix, in fp32."""
        return _multiplied(self.left.float(), self.right.float() @ matrix, self.sizes)

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """The sums over samples. Where tasks have one output each, no gradient of a sample is multiplied out."""
        if not self._single:
            return super().times_samples(z, matrix)
        left, right = self.left.float().t(), self.right.float() @ matrix
        first = (left @ z).unsqueeze(2) * right.unsqueeze(1)
        return first, (left.square() @ z.square()) * right.square().sum(1, keepdim=True)

    def leaf_gradients(self, own: Tensor | None) -> list[tuple[int, Tensor, Tensor]]:
        """(task, leaf, gradient) for the layers' weights and biases, times `own` [m] (None: 1)."""
        at_weights, at_biases = self.at_layers(own)
        dtype = next((pair[0].dtype for pair in self.leaves if pair is not None), self.dtype)
        if dtype != self.dtype:
            at_weights, at_biases = at_weights.to(dtype), at_biases.to(dtype)
        found: list[tuple[int, Tensor, Tensor]] = []
        split = at_weights.split_with_sizes(self.sizes), at_biases.split_with_sizes(self.sizes)
        for task, (pair, at_weight, at_bias) in enumerate(zip(self.leaves, *split, strict=True)):
            if pair is not None:
                weight, bias = pair
                found.append((task, weight, at_weight))
                if bias is not None:
                    found.append((task, bias, at_bias))
        return found

    def at_layers(self, own: Tensor | None) -> tuple[Tensor, Tensor]:
        """[outputs of all layers, features] and [outputs of all layers]: the gradients of weights and biases."""
        left = self.left if own is None else self.left * self._per_output(own.to(self.dtype))
        at_weights = left.t() @ self.z.to(self.dtype)
        if self._rows is not None:  # it may be z that is not finite
            at_weights = torch.where(self._rows, at_weights, self._zero)
        return at_weights, left.sum(0)

    def statistics(self) -> "Factored":
        """The two factors, which are copies, and nothing that holds the graph or the weights."""
        nothing = [None] * len(self.sizes)
        kept = Factored(self.z, nothing, (), self.sizes, nothing, self.dtype)
        kept.left, kept.right = self.left, self.right
        return kept


def _multiplied(left: Tensor, right: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """[m, samples, features]: the product for every task."""
    tasks, size = len(sizes), sizes[0]
    if set(sizes) == {1}:  # a product of matrices takes several times as long for vectors
        return left.T.contiguous()[:, :, None] * right[:, None]
    if set(sizes) == {size}:
        return torch.bmm(left.view(-1, tasks, size).transpose(0, 1), right.view(tasks, size, -1))
    lefts, rights = torch.split(left, [*sizes], dim=1), torch.split(right, [*sizes])
    return torch.stack([one @ other for one, other in zip(lefts, rights, strict=True)])
