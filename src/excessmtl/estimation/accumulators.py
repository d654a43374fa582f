"""Where the paper's estimate keeps its sums of squared gradients s, as many numbers per task as the trunk has.

They are brought up to date in place, when the step can no longer fail: they are too large to exist twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from excessmtl.engine.observation import Observation
from excessmtl.estimation.paper import chunks, excess_risks

State = dict[str, Tensor]
_ODD, _GOLDEN = 0x3C6EF35F, 0x9E3779B9 - 2**32


@dataclass(frozen=True)
class Estimate:
    """What a step makes of the accumulators."""

    risks: Tensor
    """E [m], this step included; zero for tasks that are not ok."""
    state: State = field(default_factory=dict)
    """What is replaced."""
    finish: Callable[[], None] | None = None
    """Brings the rest up to date in place."""


class Accumulators(Protocol):
    """One way to keep s."""

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """s = 0."""

    def estimate(self, state: State, seen: Observation) -> Estimate:
        """E, and how s changes."""


class Whole:
    """Every number of s in fp32: Algorithm 1 to the letter."""

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """[m, n], the parameters side by side."""
        return {"squares": torch.zeros(tasks, sum(shape.numel() for shape in shared))}

    def estimate(self, state: State, seen: Observation) -> Estimate:
        """As in the paper."""
        pairs = list(_pairs(state["squares"], seen))

        def finish() -> None:
            for rows, squares in pairs:
                squares.addcmul_(rows, rows)

        return Estimate(_total(excess_risks(rows, squares) for rows, squares in pairs), finish=finish)


class Rounded:
    """Every number of s in bf16: half the memory.

    With 8 bits a sum of squares stops growing as soon as a square is less than 1/256 of it. So sums are rounded up or
    down by chance, up the more often the closer they are to it, and are right on average. Chance is the last bits of
    the gradient and a counter, which runs evenly through all values should the gradient stand still: no random
    stream is touched, and a resumed run goes on bit for bit.
    """

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """As before, and the counter."""
        (squares,) = Whole().init(tasks, shared).values()
        return {"squares": squares.bfloat16(), "roundings": torch.zeros((), dtype=torch.int32)}

    def estimate(self, state: State, seen: Observation) -> Estimate:
        """E before rounding."""
        pairs = list(_pairs(state["squares"], seen))
        counter = state["roundings"] + 1

        def finish() -> None:
            for rows, squares in pairs:
                for gradient, old in chunks(rows, squares):
                    old.copy_(_rounded(torch.addcmul(old.float(), gradient, gradient), gradient, counter))

        risks = _total(excess_risks(rows, squares) for rows, squares in pairs)
        return Estimate(risks, {"roundings": counter}, finish)


def _rounded(values: Tensor, gradient: Tensor, counter: Tensor) -> Tensor:
    """In place: the positive fp32 values as numbers that bf16 has. What it has already stays."""
    # Any odd number carries the last bits of the gradient to the first ones. The counter's is 2^32 over the golden
    # ratio: its multiples fill the range more evenly than those of any other.
    chance = (gradient.view(torch.int32) * _ODD).add_(counter * _GOLDEN)
    # bf16 is the upper half of fp32: add a chance 16-bit number to the lower half, and cut that off.
    values.view(torch.int32).add_(chance.bitwise_right_shift_(16).bitwise_and_(0xFFFF)).bitwise_and_(-0x10000)
    return values


ACCUMULATORS: Mapping[str, Accumulators] = {"fp32": Whole(), "bf16": Rounded()}


def _pairs(squares: Tensor, seen: Observation) -> Iterator[tuple[Tensor, Tensor]]:
    """The gradients beside their accumulators: all parameters in one, unless some are frozen."""
    if seen.matrix is not None and seen.matrix.shape == squares.shape:
        yield seen.matrix, squares
        return
    for rows, offset in zip(seen.rows, seen.offsets, strict=True):
        yield rows, squares[:, offset : offset + rows.shape[1]]


def _total(shares: Iterator[Tensor] | Sequence[Tensor]) -> Tensor:
    return torch.stack(list(shares)).sum(0)
