"""The weighted sum of large tensors, some of which do not count, whatever they hold: zero times NaN is NaN."""

from collections.abc import Sequence

import torch
from torch import Tensor

from excessmtl.gradients.kernels import kernels_for
from excessmtl.gradients.rows import kept_where


def weighted_sum(tensors: Sequence[Tensor], weights: Tensor, ok: Tensor) -> Tensor:
    """The sum of those that are `ok` [k], times `weights` [k]; all of them are laid out alike."""
    if (kernels := kernels_for(tensors[0])) is not None:
        found: Tensor = kernels.weighted_sum(tensors, weights, ok)
        return found
    dtype = tensors[0].dtype
    # A sum in half precision would lose a bit whenever the number of tasks grows fourfold.
    weights = weights.to(torch.promote_types(dtype, torch.float32))
    total = kept_where(ok[0], tensors[0]).to(weights.dtype).mul_(weights[0])
    for place in range(1, len(tensors)):
        total.addcmul_(kept_where(ok[place], tensors[place]), weights[place])
    return total.to(dtype)
