"""Heads that take z by a linear layer: recognising them in the autograd graph, and their gradients all in one.

From what arrives at the outputs of all such layers, two products of matrices give every gradient at their weights and
biases; autograd would multiply layer by layer.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node

from excessmtl.gradients.capture import Cut
from excessmtl.gradients.graph import leaf_of
from excessmtl.gradients.products import Products
from excessmtl.gradients.rows import Rows
from excessmtl.gradients.stacked import Alike

_LAYERS = {"AddmmBackward0": 1, "MmBackward0": 0}
"""What `nn.Linear` leaves behind for a matrix of samples, with a bias and without, and where its input stands."""
Pair = tuple[Tensor, Tensor]
"""A leaf and its gradient."""


@dataclass(frozen=True)
class Linear:
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


def linear_heads(
    cut: Cut, entries: Sequence[Mapping[Node, Sequence[int]]], repeated: Collection[Node]
) -> list[Linear | None] | None:
    """The layer by which each task (None: a missing one) takes z, where all do so by one linear layer of few outputs.

    None otherwise. Few: so that the products that are saved outweigh those that stand in their place. `repeated`: nodes
    above z to which several edges lead.
    """
    if cut.stored.ndim != 2 or not cut.unchanged:
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
    alike = all(leaf is None or leaf.dtype == dtype for one in found if one is not None for leaf in (one.weight, one.bias))
    return found if few and exact and alike else None


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


def at_layers(
    cut: Cut, linear: Sequence[Linear | None], arrived: Sequence[Tensor | None]
) -> tuple[Products, list[Alike], list[list[Pair]]]:
    """The gradients at z and at the layers' own leaves, from those that `arrived` at their outputs.

    The leaves are together where all layers are of one shape, else task by task.
    """
    layers = [layer for layer in linear if layer is not None]
    sizes = tuple([0 if layer is None else layer.outputs for layer in linear])
    with torch.no_grad():
        left = torch.cat([_or_zero(*pair, cut) for pair in zip(arrived, layers, strict=True)], dim=1)
        right = torch.cat([layer.weight for layer in layers])
        at_weights, at_biases = left.t() @ cut.stored, left.sum(0)
    products = Products(left, right, sizes)
    tasks = tuple([task for task, layer in enumerate(linear) if layer is not None])
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers if layer.bias is not None]
    if {*sizes} - {0} == {sizes[tasks[0]]} and len(biases) in (0, len(layers)) and all(g is not None for g in arrived):
        together = [(weights, at_weights), (biases, at_biases)] if biases else [(weights, at_weights)]
        return products, [Alike(leaves, tasks, _rows(leaves, found)) for leaves, found in together], [[] for _ in linear]
    own: list[list[Pair]] = [[] for _ in linear]
    lengths = [layer.outputs for layer in layers]
    split = zip(tasks, layers, arrived, at_weights.split(lengths), at_biases.split(lengths), strict=True)
    for task, layer, at_output, at_weight, at_bias in split:
        if at_output is not None:
            own[task].append((layer.weight, at_weight))
            if layer.bias is not None:
                own[task].append((layer.bias, at_bias))
    return products, [], own


def _or_zero(arrived: Tensor | None, layer: Linear, cut: Cut) -> Tensor:
    return cut.stored.new_zeros(cut.stored.shape[0], layer.outputs) if arrived is None else arrived


def _rows(leaves: Sequence[Tensor], gradients: Tensor) -> Rows:
    shape = leaves[0].shape
    return Rows(gradients.view(len(leaves), -1), shape, tuple(range(len(shape))))
