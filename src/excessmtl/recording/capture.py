"""Capturing a CUDA graph so that the process is as it was before, whatever goes wrong on the way."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from excessmtl.torch_private import end_allocation_to_pool


@contextmanager
def captured(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> Iterator[None]:
    """Inside, what is asked of the device on this thread goes to `stream`, where it is not done but kept in `graph`.

    Nothing waits for the device. Other threads, and what Python lets go of meanwhile, do not disturb it.
    """
    with torch.cuda.stream(stream), _no_collection():
        graph.capture_begin(pool=pool, capture_error_mode="relaxed")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # what went wrong is said already
                _end(graph, stream, pool)
            raise
        _end(graph, stream, pool)


def _end(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> None:
    try:
        graph.capture_end()
    except BaseException:
        # Torch leaves the random generator and the allocator believing that the capture goes on: from then on every
        # random number drawn on the device would be an error. Ending one that goes well sets both right.
        with suppress(Exception):
            end_allocation_to_pool(stream.device, pool)
        with suppress(Exception):
            empty = torch.cuda.CUDAGraph()
            empty.capture_begin(capture_error_mode="relaxed")
            torch.zeros((), device=stream.device)
            empty.capture_end()
        raise


@contextmanager
def _no_collection() -> Iterator[None]:
    """Inside, Python collects no garbage: taking an old graph apart in the middle of a capture ends the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
