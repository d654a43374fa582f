"""Recognising linear layers in the autograd graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import Node

from excessmtl.gradients.capture import Cut
from excessmtl.gradients.graph import leaf_of

_LAYERS = {"AddmmBackward0": 1, "MmBackward0": 0}
"""What `nn.Linear` leaves behind for a matrix of samples, with a bias and without, and where its input stands."""


@dataclass(frozen=True)
class Linear:
    """A layer `z @ weight.T (+ bias)`."""

    node: Node
    weight: Tensor
    """[outputs, features]"""


def linear_heads(cut: Cut, entries: Sequence[Mapping[Node, Sequence[int]]]) -> list[Linear | None] | None:
    """The layer by which each task (None: a missing one) takes z, where all do so by one linear layer of few outputs.

    None otherwise. Few: so that the products that are saved outweigh those that stand in their place.
    """
    if cut.stored.ndim != 2:
        return None
    found: list[Linear | None] = []
    for above in entries:
        layer = _layer(above)
        if above and layer is None:
            return None
        found.append(layer)
    samples, features = cut.stored.shape
    outputs = [len(layer.weight) for layer in found if layer is not None]
    dtypes = {layer.weight.dtype for layer in found if layer is not None}
    few = sum(outputs) * (samples + features) <= len(outputs) * samples * features
    # Half precision overflows where the finite check of the factors, which looks no further than fp32, sees nothing.
    exact = dtypes == {cut.stored.dtype} and cut.stored.dtype != torch.float16
    return found if few and exact else None


def _layer(above: Mapping[Node, Sequence[int]]) -> Linear | None:
    if len(above) != 1:
        return None
    ((node, positions),) = above.items()
    place = _LAYERS.get(type(node).__name__)
    if place is None or list(positions) != [place] or getattr(node, "_saved_alpha", 1) != 1:
        return None
    transposed, _ = node.next_functions[place + 1]
    if transposed is None or type(transposed).__name__ != "TBackward0":
        return None
    weight = leaf_of(transposed.next_functions[0][0])  # type: ignore[arg-type]
    return None if weight is None else Linear(node, weight)
