"""Gradients at z through linear heads: each is a product of two small matrices, and need not be multiplied out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from excessmtl.gradients.rows import index_of, keep_where


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

    def each(self, values: Tensor) -> Tensor:
        """[m] -> [outputs of all heads]"""
        return values if set(self.sizes) == {1} else values[self._owners]

    def by_task(self, values: Tensor) -> Tensor:
        """[outputs of all heads] -> [m]: sums."""
        if set(self.sizes) == {1}:
            return values
        return values.new_zeros(len(self.sizes)).index_add(0, self._owners, values)

    def sums(self) -> Tensor:
        """[m]; finite if and only if all entries of both factors and of their product are (or are beyond any use)."""
        # A product of norms: factors that are finite may still overflow when they are multiplied out.
        sizes = torch.linalg.vector_norm(self.left, 1, dim=0), torch.linalg.vector_norm(self.right, 1, dim=1)
        return self.by_task((sizes[0] * sizes[1]).float())

    def keep(self, ok: Tensor) -> None:
        """Set the tasks to zero where not `ok` [m]. Both factors: zero times NaN is NaN."""
        mine = self.each(ok)
        keep_where(mine, self.left)
        keep_where(mine.unsqueeze(1), self.right)

    def combined(self, weights: Tensor) -> Tensor:
        """The weighted sum."""
        return (self.left * self.each(weights.to(self.left.dtype))) @ self.right

    @property
    def tensors(self) -> Tensor:
        """[m, samples, features]"""
        tasks, size = len(self.sizes), self.sizes[0]
        if set(self.sizes) == {1}:  # a product of matrices takes several times as long for vectors
            return self.left.T.contiguous()[:, :, None] * self.right[:, None]
        if set(self.sizes) == {size}:
            left = self.left.view(-1, tasks, size).transpose(0, 1)
            return torch.bmm(left, self.right.view(tasks, size, -1))
        lefts, rights = torch.split(self.left, [*self.sizes], dim=1), torch.split(self.right, [*self.sizes])
        return torch.stack([left @ right for left, right in zip(lefts, rights, strict=True)])

    def times(self, matrix: Tensor) -> Tensor:
        """[m, samples, columns]: every gradient times `matrix`, in fp32."""
        return Products(self.left.float(), self.right.float() @ matrix, self.sizes).tensors
