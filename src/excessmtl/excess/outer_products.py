"""Products of z with its gradient, sample by sample, summed over the positions of large maps."""

from torch import Tensor

_PART = 512
"""Positions that are multiplied at once on a GPU, where one long product of small matrices keeps most of it waiting."""
_MANY = 2**15
"""So many positions are worth the launches of a product per sample."""


def outer_products(z: Tensor, dz: Tensor) -> Tensor:
    """[samples, features, features]: z' dz of maps [samples, positions, features], in fp32."""
    z, dz = z.float(), dz.float()
    return in_parts(z, dz) if z.device.type == "cuda" and z.shape[1] >= _MANY else z.mT @ dz


def in_parts(z: Tensor, dz: Tensor) -> Tensor:
    """The same, a part of the positions at a time: views of a map, which are not copied."""
    even = z.shape[1] // _PART * _PART
    total = z[:, even:].mT @ dz[:, even:]
    for product, left, right in zip(total, z[:, :even], dz[:, :even], strict=True):
        product += (left.unflatten(0, (-1, _PART)).mT @ right.unflatten(0, (-1, _PART))).sum(0)
    return total
