"""Statistics over all processes of data-parallel training: the one place that knows there are others.

Gradients need nothing of ours: they reach the parameters in one backward pass, where the hooks of
`DistributedDataParallel` average them. What a rule looks at is summed here, so that every process decides alike, by
what the whole batch shows.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

Reduction = Callable[[Tensor], Tensor]


def no_reduction(tensor: Tensor) -> Tensor:
    """The sum over one process."""
    return tensor


def over_processes(tensor: Tensor) -> Tensor:
    """The sum over all processes of the default group; every process has to ask for it."""
    summed = tensor.detach().clone()
    dist.all_reduce(summed)
    return summed


def reduced_in_one(tensors: Sequence[Tensor], reduction: Reduction) -> Sequence[Tensor]:
    """Several tensors summed over the processes by one call."""
    if reduction is no_reduction:
        return tensors
    flat = reduction(torch.cat([tensor.flatten() for tensor in tensors]))
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


def processes() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def mean_where(values: Tensor, valid: Tensor, reduction: Reduction) -> tuple[Tensor, Tensor]:
    """Mean of `values` [m] over the processes where they are valid, and whether there is one."""
    sums = reduction(torch.stack([torch.where(valid, values, 0), valid.to(values)]))
    return sums[0] / sums[1].clamp(min=1), sums[1] > 0
