"""Tensors of one shape in one, so that checking, masking and weighing them takes few operations."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from excessmtl.tensors import magnitude, zero_unless


@dataclass(frozen=True)
class Stacked:
    """k tensors of one shape. Memory is laid out as in theirs: channels last stays channels last."""

    flat: Tensor
    """[k, n], in the order of memory."""
    shape: torch.Size
    order: tuple[int, ...]
    """Dimensions from the outermost to the innermost in memory."""

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> "Stacked":
        """Copies of these."""
        order = memory_order(tensors[0])
        ordered = tensors if _usual(order) else [tensor.permute(order) for tensor in tensors]
        return Stacked(torch.stack([*ordered]).view(len(tensors), -1), tensors[0].shape, order)

    @cached_property
    def tensors(self) -> Tensor:
        """[k, ...]: in their original shape."""
        return self.shaped(self.flat)

    def shaped(self, rows: Tensor) -> Tensor:
        """[n] or [k, n] in the order of memory -> the original shape."""
        lead = rows.ndim - 1
        if _usual(self.order):
            return rows.reshape((*rows.shape[:lead], *self.shape))
        sizes = [self.shape[dim] for dim in self.order]
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return rows.reshape(*rows.shape[:lead], *sizes).permute(*range(lead), *(lead + place for place in back))

    def magnitudes(self) -> Tensor:
        """[k] fp32 norms; not finite where an entry is not."""
        return magnitude(self.flat, dim=1)

    def zero_unless(self, ok: Tensor) -> None:
        """Set the tensors to zero where not `ok` [k]."""
        zero_unless(ok.unsqueeze(1), self.flat)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of all, times `weights` [k].

        The last one first, as autograd adds up the gradients of heads that were computed in task order: with equal
        weights it is the gradient of the sum of the losses, to the bit. Half precision is added up in fp32.
        """
        wide = torch.promote_types(self.flat.dtype, torch.float32)
        weights = weights.to(wide)
        rows = self.flat.unbind()
        total = rows[-1].to(wide) * weights[-1]
        for place in reversed(range(len(rows) - 1)):
            total.addcmul_(rows[place], weights[place])
        return self.shaped(total.to(self.flat.dtype))


def memory_order(tensor: Tensor) -> tuple[int, ...]:
    """Its dimensions from the outermost to the innermost in memory."""
    strides = tensor.stride()
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))


def _usual(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))
