"""Heads that take z by a linear layer: recognising them in the autograd graph, and their gradients all in one.

From what arrives at the outputs of all such layers, two products of matrices give every gradient at their weights and
biases; autograd would multiply layer by layer.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node

from excessmtl.gradients.cut import Cut
from excessmtl.gradients.graph import leaf_of
from excessmtl.gradients.products import Products
from excessmtl.gradients.rows import keep_where

_LAYERS = {"AddmmBackward0": 1, "MmBackward0": 0}
"""What `nn.Linear` leaves behind for a matrix of samples, with a bias and without, and where its input stands."""
_INPUTS = {"AddmmBackward0": "_saved_mat1", "MmBackward0": "_saved_self"}
"""Under which name it keeps its input."""
Owned = tuple[int, Tensor, Tensor]
"""A task, a leaf of its own, and the gradient there."""


class Linear(NamedTuple):
    """A layer `z @ weight.T (+ bias)` whose weight and bias serve nothing else."""

    node: Node
    weight: Tensor
    """[outputs, features]"""
    bias: Tensor | None
    outputs: int

    @property
    def output(self) -> GradientEdge:
        """Where the gradient at its output arrives."""
        return GradientEdge(self.node, 0)

    def check_input(self) -> None:
        """The error of autograd if its input has been overwritten since, or the graph is gone."""
        getattr(self.node, _INPUTS[type(self.node).__name__])

    @property
    def applied(self) -> Tensor:
        """[features, outputs]: the weight as it was applied, or autograd's error if it has been overwritten since."""
        transposed: Tensor = self.node._saved_mat2  # type: ignore[attr-defined]  # so with a bias and without
        return transposed


def linear_heads(
    cut: Cut, entries: Sequence[Mapping[Node, Sequence[int]]], repeated: Collection[Node]
) -> list[Linear | None] | None:
    """The layer by which each task (None: a missing one) takes z, where all do so by one linear layer of few outputs.

    None otherwise. Few: so that the products that are saved outweigh those that stand in their place. `repeated`: nodes
    above z to which several edges lead.
    """
    if cut.stored.ndim != 2:
        return None
    found: list[Linear | None] = []
    for above in entries:
        layer = _layer(above, repeated)
        if above and layer is None:
            return None
        found.append(layer)
    samples, features = cut.stored.shape
    outputs = [layer.outputs for layer in found if layer is not None]
    few = sum(outputs) * (samples + features) <= len(outputs) * samples * features
    dtype = cut.stored.dtype
    # Half precision overflows where the finite check of the factors, which looks no further than fp32, sees nothing.
    exact = dtype.is_floating_point and dtype != torch.float16
    alike = all(
        leaf is None or leaf.dtype == dtype for one in found if one is not None for leaf in (one.weight, one.bias)
    )
    if not (few and exact and alike):
        return None
    for layer in found:
        if layer is not None:
            layer.check_input()
    return found


def _layer(above: Mapping[Node, Sequence[int]], repeated: Collection[Node]) -> Linear | None:
    if len(above) != 1:
        return None
    ((node, positions),) = above.items()
    place = _LAYERS.get(type(node).__name__)
    if place is None or positions != [place] or getattr(node, "_saved_alpha", 1) != 1:
        return None
    inputs = [child for child, _ in node.next_functions]
    transposed = inputs[place + 1]
    if transposed is None or transposed in repeated or type(transposed).__name__ != "TBackward0":
        return None
    weight = _parameter(transposed.next_functions[0][0], repeated)
    if weight is None:
        return None
    outputs = weight.shape[0]
    if place == 0 or inputs[0] is None:
        return Linear(node, weight, None, outputs)
    bias = _parameter(inputs[0], repeated)
    plain = bias is not None and bias.shape == (outputs,) and getattr(node, "_saved_beta", 1) == 1
    return Linear(node, weight, bias, outputs) if plain else None


def _parameter(node: Node | None, repeated: Collection[Node]) -> Tensor | None:
    """The leaf at which the graph ends here, if it is an ordinary one."""
    leaf = None if node is None or node in repeated else leaf_of(node)
    return leaf if type(leaf) in (nn.Parameter, Tensor) else None


@dataclass(frozen=True)
class Layers(Products):
    """Gradients at z through these layers. The same factors, with z, give those at the layers' own leaves."""

    z: Tensor
    layers: Sequence[Linear | None]
    """Per task; None where there is none, or no gradient arrived at its output."""

    def sums(self) -> Tensor:
        """[m]; finite if and only if everything that is multiplied here is, and the products (or beyond any use)."""
        norm = torch.linalg.vector_norm
        # For z the Euclidean norm, which is fast on a CPU: it is the largest of the three by far.
        each = norm(self.left, 1, dim=0) * (norm(self.right, 1, dim=1) + norm(self.z))
        return self.by_task(each.float())

    def alone(self) -> Products:
        """What there is at z."""
        return Products(self.left, self.right, self.sizes)

    def owned(self, heads: Tensor | None, ok: Tensor | None) -> Iterator[Owned]:
        """The gradients of the layers' leaves, times `heads` (None: one), zero where not `ok` (None: all are)."""
        left = self.left if heads is None else self.left * self.each(heads.to(self.left.dtype))
        at_weights, at_biases = left.t() @ self.z, left.sum(0)
        if ok is not None:  # z may be what is not finite
            keep_where(self.each(ok).unsqueeze(1), at_weights)
        split = [gradients.split_with_sizes(self.sizes) for gradients in (at_weights, at_biases)]
        for task, (layer, at_weight, at_bias) in enumerate(zip(self.layers, *split, strict=True)):
            if layer is not None:
                yield task, layer.weight, at_weight
                if layer.bias is not None:
                    yield task, layer.bias, at_bias


@dataclass(frozen=True)
class AtOutputs:
    """What arrived at the outputs of the tasks' layers, task by task: not joined yet."""

    z: Tensor
    layers: Sequence[Linear | None]
    """Per task; None where there is none."""
    arrived: Sequence[Tensor | None]
    """Per task: [samples, outputs]; None where no gradient arrived."""
    applied: Sequence[Tensor]
    """Of the layers that are there: [features, outputs]"""

    @property
    def kind(self) -> Hashable:
        """Beside what the tensors look like: equal for what is computed alike."""
        leaves = [None if layer is None else (id(layer.weight), id(layer.bias)) for layer in self.layers]
        return tuple(leaves), tuple([found is None for found in self.arrived])

    @property
    def factors(self) -> list[Tensor]:
        """The tensors it is made of, but for z."""
        return [*(found for found in self.arrived if found is not None), *self.applied]

    def on(self, z: Tensor, factors: Iterator[Tensor]) -> "AtOutputs":
        """The same with another z and the next of other `factors`."""
        arrived = [None if found is None else next(factors) for found in self.arrived]
        return AtOutputs(z, self.layers, arrived, [next(factors) for _ in self.applied])

    def joined(self) -> Layers:
        """All gradients at the layers and at z."""
        sizes = tuple(0 if layer is None else layer.outputs for layer in self.layers)
        samples = len(self.z)
        pairs = zip(self.arrived, sizes, strict=True)
        lefts = [self.z.new_zeros(samples, size) if found is None else found for found, size in pairs]
        reached = [None if found is None else layer for found, layer in zip(self.arrived, self.layers, strict=True)]
        with torch.no_grad():  # what was applied still knows the parameters
            right = torch.cat([transposed.t() for transposed in self.applied])
        return Layers(torch.cat(lefts, dim=1), right, sizes, self.z, reached)
