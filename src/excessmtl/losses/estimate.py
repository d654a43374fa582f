"""What a robust loss has learned from its batches."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from excessmtl.distributed.processes import over_processes, processes
from excessmtl.torch_private import buffers_of, copy_all

State = dict[str, Tensor]
"""The buffers of several estimates by name, stacked: [estimates, ...]."""


class Estimate(nn.Module):
    """A module whose buffers are running estimates: fp32 whatever the model is, and the same in all processes.

    Args:
        pool: whether the processes of `torch.distributed`, where there are several, learn from all their batches.
        shapes: name of a buffer -> its shape; it starts at zero.
    """

    def __init__(self, pool: bool, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.pool = pool
        with torch.inference_mode(False):  # a tensor made in inference mode could never be updated
            for name, shape in shapes.items():
                self.register_buffer(name, torch.zeros(shape, dtype=torch.float32))

    @property
    def learns(self) -> bool:
        """Not in `eval()` mode, nor where gradients are off: then no other process may be training."""
        return self.training and torch.is_grad_enabled()

    @property
    def waits_for_others(self) -> bool:
        """Whether it learns together with the other processes, and waits for them."""
        return self.pool and self.learns and processes() > 1

    def learned(self, state: State, *batch: Any) -> State:
        """The states of several estimates after a batch; each tensor of the batch is [estimates, ...]."""
        raise NotImplementedError

    def pooled(self, sums: Tensor) -> Tensor:
        """Sums over the batch, summed over the processes too."""
        return over_processes(sums) if self.pool and processes() > 1 else sums

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves to another device as any module does, and stays in fp32: half precision cannot count to 3,000."""

        def moved(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        with torch.inference_mode(False):
            super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return self


def stacked(estimates: Sequence[Estimate]) -> State:
    """The states of estimates of one class."""
    states = [buffers_of(estimate) for estimate in estimates]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


@torch.no_grad()
def learn(estimates: Sequence[Estimate], *batch: Any) -> None:
    """Let estimates of one class learn from their batches; each tensor of the batch is [estimates, ...]."""
    learned = estimates[0].learned(stacked(estimates), *batch)
    buffers = [buffers_of(estimate)[name] for name in learned for estimate in estimates]
    copy_all(buffers, [value for values in learned.values() for value in values.unbind()])


def learns_with_others(loss: object) -> bool:
    """Whether a loss, called now, waits for the same loss of the other processes."""
    parts = loss.modules() if isinstance(loss, nn.Module) and processes() > 1 else ()
    return any(isinstance(part, Estimate) and part.waits_for_others for part in parts)


def ordinary(tensor: Tensor | None) -> Tensor | None:
    """The tensor; a copy of one made in inference mode, which autograd would refuse."""
    if tensor is None or not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()
