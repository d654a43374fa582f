"""Sums of squares in bf16: half the memory of fp32.

With 8 bits a sum of squares stops growing as soon as a square is less than 1/256 of it. So sums are rounded up or down
by chance, up the more often the closer they are to it, and are right on average. Chance is the last bits of the
gradient and a counter, which runs evenly through all values should the gradient stand still: no random stream is
touched, and a resumed run goes on bit for bit.
"""

import torch
from torch import Tensor

_ODD, _GOLDEN = 0x3C6EF35F, 0x9E3779B9 - 2**32


def add_squares_in_bf16(squares: Tensor, gradient: Tensor, counter: Tensor) -> None:
    """In place: add the squares of an fp32 gradient. `counter`: the number of this addition."""
    squares.copy_(_rounded(torch.addcmul(squares.float(), gradient, gradient), gradient, counter))


def _rounded(values: Tensor, gradient: Tensor, counter: Tensor) -> Tensor:
    """In place: the positive fp32 values as numbers that bf16 has. What it has already stays."""
    # Any odd number carries the last bits of the gradient to the first ones. The counter's is 2^32 over the golden
    # ratio: its multiples fill the range more evenly than those of any other.
    chance = (gradient.view(torch.int32) * _ODD).add_(counter * _GOLDEN)
    # bf16 is the upper half of fp32: add a chance 16-bit number to the lower half, and drop that.
    values.view(torch.int32).add_(chance.bitwise_right_shift_(16).bitwise_and_(0xFFFF)).bitwise_and_(-0x10000)
    return values
