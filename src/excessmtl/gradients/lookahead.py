"""Gradients at parameters moved one step ahead, with everything put back afterwards."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def moved(parameters: Sequence[Tensor], steps: Sequence[Tensor], module: nn.Module | None) -> Iterator[None]:
    """Inside: parameters minus steps, and a private copy of `module`'s buffers. Afterwards: all as before.

    Storage is swapped, not written, so the training graph stays valid and what comes back is exact. The buffers
    are copied because an auxiliary forward must not leave its mark on BatchNorm statistics.
    """
    buffers = [] if module is None else list(module.buffers())
    kept = [(tensor, tensor.data) for tensor in (*parameters, *buffers)]
    try:
        for parameter, step in zip(parameters, steps, strict=True):
            parameter.data = parameter.data - step.to(parameter.dtype)
        for buffer in buffers:
            buffer.data = buffer.data.clone()
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data
