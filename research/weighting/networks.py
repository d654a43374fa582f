"""Many perceptrons of one shape as one batched network: every parameter has a first dimension that counts runs."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor

Layer = tuple[Tensor, Tensor]
"""Weights [runs, in, out] and biases [runs, 1, out]."""


class Perceptrons:
    """A trunk with a ReLU after every layer, and a linear head per task.

    Every case (noise level and seed) starts from weights of its own, the same for every candidate: runs are ordered
    candidate by candidate, and within a candidate case by case.
    """

    def __init__(
        self, widths: Sequence[int], outputs: Sequence[int], cases: int, copies: int, generator: Generator, device: str
    ) -> None:
        def layer(before: int, after: int) -> Layer:
            reach = 1 / math.sqrt(before)  # as nn.Linear is initialised
            parts = [(torch.rand(cases, rows, after, generator=generator) * 2 - 1) * reach for rows in (before, 1)]
            weight, bias = (part.repeat(copies, 1, 1).to(device).requires_grad_() for part in parts)
            return weight, bias

        self.trunk = [layer(before, after) for before, after in pairwise(widths)]
        self.heads = [layer(widths[-1], size) for size in outputs]

    def parameters(self) -> list[Tensor]:
        """All of them."""
        return [parameter for layer in (*self.trunk, *self.heads) for parameter in layer]

    def represent(self, inputs: Tensor) -> Tensor:
        """Inputs [runs, samples, features] -> the shared representation."""
        for weight, bias in self.trunk:
            inputs = torch.baddbmm(bias, inputs, weight).relu()
        return inputs


def apply_head(head: Layer, representation: Tensor) -> Tensor:
    """Outputs [runs, samples, outputs]."""
    weight, bias = head
    return torch.baddbmm(bias, representation, weight)
