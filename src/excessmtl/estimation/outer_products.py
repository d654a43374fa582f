"""Products of z with its gradient, sample by sample, summed over the positions of large maps."""

from torch import Tensor

from excessmtl.fast.kernels import kernels_for

_PART = 512
"""Positions that are multiplied at once on a GPU, where one long product of small matrices keeps most of it waiting."""
_MANY = 2**15
"""So many positions are worth the launches of a product per sample."""
_FEATURES = 64
"""More do not fit the kernel."""
_FARTHEST = 2**31
"""So far from the beginning of a sample the kernel does not count."""


def outer_products(z: Tensor, dz: Tensor) -> Tensor:
    """[samples, features, features]: z' dz of maps [samples, positions, features], in fp32."""
    positions = z.shape[1]
    kernels = kernels_for(z) if _fit_the_kernel(z, dz) else None
    if kernels is not None:
        found: Tensor = kernels.outer_products(z, dz)
        return found
    z, dz = z.float(), dz.float()
    return in_parts(z, dz) if z.device.type == "cuda" and positions >= _MANY else z.mT @ dz


def _fit_the_kernel(z: Tensor, dz: Tensor) -> bool:
    return (
        z.dtype == dz.dtype
        and z.shape[2] <= _FEATURES
        and z.numel() > 0
        and all(_length_of_a_sample(maps) <= _FARTHEST for maps in (z, dz))
    )


def _length_of_a_sample(maps: Tensor) -> int:
    """In memory, from its first entry to its last."""
    return 1 + sum((maps.shape[dim] - 1) * maps.stride(dim) for dim in (1, 2))


def in_parts(z: Tensor, dz: Tensor) -> Tensor:
    """The same, a part of the positions at a time: views of a map, which are not copied."""
    whole = z.shape[1] // _PART * _PART
    total = z[:, whole:].mT @ dz[:, whole:]
    for one, left, right in zip(total, z[:, :whole], dz[:, :whole], strict=True):
        one += (left.unflatten(0, (-1, _PART)).mT @ right.unflatten(0, (-1, _PART))).sum(0)
    return total
