"""Heads that look at one position of a sequence, as at the first token of a transformer's output.

Applies where z is [samples, positions, features] and every head takes the same position of it. That position then
stands for z: the gradients of the others are zero, and need no memory.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from excessmtl.graph.representation import FindRepresentation, Representation
from excessmtl.torch_private import selection

_POSITIONS = 1


@dataclass(frozen=True, eq=False)
class Selected(Representation):
    """One position of a representation."""

    sequence: Representation
    position: int
    places: list[GradientEdge]
    """Once, where heads share one selection, or once for every head that selects the position anew."""

    @property
    def source(self) -> Representation:
        """The sequence."""
        return self.sequence

    @property
    def edges(self) -> list[Any]:
        """All places where it is in the graph."""
        return self.places

    def delivered(self, gradient: Tensor) -> tuple[GradientEdge | None, Tensor]:
        """At the one selection, whose hooks then act as those of z do, or at the sequence where there are several."""
        if len(self.places) == 1:
            return self.edge, gradient
        sequence, filled = self.in_source(gradient)
        return sequence.edge, filled

    def without_graph(self) -> Representation:
        """A copy of the values, which does not keep those of the other positions."""
        return Representation(None, self.values.clone(), None, _nowhere)

    def in_source(self, gradient: Tensor) -> tuple[Representation, Tensor]:
        """The whole representation, and its gradient where the selected position has this one."""
        filled = torch.zeros_like(self.source.stored)
        filled.select(_POSITIONS, self.position).copy_(gradient)
        return self.source, filled


def through_selection(find: FindRepresentation) -> FindRepresentation:
    """Finds positions of the representations that `find` finds, or these themselves.

    Heads may each select their position anew: equal positions are one representation, at the node found first.
    """
    selected: dict[tuple[int, int], Selected] = {}

    def look(node: Node, output: int) -> Representation | None:
        representation = find(node, output)
        if representation is not None or (where := selection(node)) is None:
            return representation
        below, number = node.next_functions[0]
        sequence = None if below is None else find(below, number)
        if sequence is None or sequence.stored.ndim != 3 or where[0] != _POSITIONS:
            return None
        key, edge = (id(sequence), where[1]), GradientEdge(node, 0)
        if key not in selected:
            values = sequence.stored.select(*where)
            selected[key] = Selected(edge, values, sequence.version, _nowhere, sequence, where[1], [])
        if edge not in selected[key].places:
            selected[key].places.append(edge)
        return selected[key]

    return look


def _nowhere() -> None:
    """Nobody is asked to keep the selected tensor."""
