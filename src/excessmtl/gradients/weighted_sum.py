"""The weighted sum of large tensors, some of which do not count, whatever they hold: zero times NaN is NaN."""

from collections.abc import Sequence

from torch import Tensor

from excessmtl.gradients.kernels import kernels_for
from excessmtl.gradients.rows import kept_where


def weighted_sum(tensors: Sequence[Tensor], weights: Tensor, ok: Tensor) -> Tensor:
    """The sum of those that are `ok` [k], times `weights` [k]; all of them are laid out alike."""
    if (kernels := kernels_for(tensors[0])) is not None:
        found: Tensor = kernels.weighted_sum(tensors, weights, ok)
        return found
    weights = weights.to(tensors[0].dtype)
    total = kept_where(ok[0], tensors[0]).mul_(weights[0])
    for place in range(1, len(tensors)):
        total.addcmul_(kept_where(ok[place], tensors[place]), weights[place])
    return total
