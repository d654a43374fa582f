"""A `Step` in one tensor: a recording overwrites its results, and one copy of one tensor keeps them."""

import torch
from torch import Tensor

from excessmtl.step import Step


def pack(step: Step) -> Tensor:
    """The bytes of the step's tensors, one after the other."""
    numbers = torch.stack([step.weights, step.losses, step.excess_risks])
    return torch.cat([numbers.float().flatten().view(torch.uint8), step.left_out.view(torch.uint8)])


def unpack(packed: Tensor, tasks: tuple[str, ...]) -> Step:
    """The step, as views of the bytes."""
    size = packed.numel() - len(tasks)
    weights, losses, risks = packed[:size].view(torch.float32).view(3, len(tasks)).unbind()
    return Step(tasks, weights, losses, risks, packed[size:].view(torch.bool))
