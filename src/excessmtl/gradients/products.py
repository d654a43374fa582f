"""Gradients at z through linear heads: each is a product of two small matrices, and need not be multiplied out."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from excessmtl.gradients.rows import index_of, zero_bits


@dataclass(frozen=True)
class Products:
    """dz_i = left_i right_i: what arrives at the output of head i, times its weight matrix.

    The sum over tasks is then one product of matrices, of the size of one layer, however many tasks there are.
    """

    left: Tensor
    """[samples, outputs of all heads]"""
    right: Tensor
    """[outputs of all heads, features]"""
    sizes: tuple[int, ...]
    """Outputs of each head; 0 where the task is missing."""

    @property
    def _owners(self) -> Tensor:
        """[outputs of all heads]: whose they are."""
        owners = tuple(task for task, size in enumerate(self.sizes) for _ in range(size))
        return index_of(owners, self.left.device)

    def sums(self) -> Tensor:
        """[m]; finite if and only if all entries of both factors are (or are beyond any use)."""
        each = self.left.sum(0, dtype=torch.float32) + self.right.sum(1, dtype=torch.float32)
        return each.new_zeros(len(self.sizes)).index_add(0, self._owners, each)

    def zero_unless(self, ok: Tensor) -> None:
        """Set the tasks that are not ok to zero. Both factors: zero times NaN is NaN."""
        mine = ok[self._owners]
        zero_bits(self.left, mine)
        zero_bits(self.right, mine[:, None])

    def combined(self, weights: Tensor) -> Tensor:
        """The weighted sum."""
        return (self.left * weights.to(self.left.dtype)[self._owners]) @ self.right

    @cached_property
    def tensors(self) -> Tensor:
        """[m, samples, features]"""
        lefts, rights = torch.split(self.left, [*self.sizes], dim=1), torch.split(self.right, [*self.sizes])
        if len(set(self.sizes)) == 1:
            return torch.stack(lefts) @ torch.stack(rights)
        return torch.stack([left @ right for left, right in zip(lefts, rights, strict=True)])

    def times(self, matrix: Tensor) -> Tensor:
        """[m, samples, columns]: every gradient times `matrix`, in fp32."""
        return Products(self.left.float(), self.right.float() @ matrix, self.sizes).tensors
