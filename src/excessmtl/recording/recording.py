"""Work on a device recorded once as a CUDA graph, and a cache of such recordings."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from excessmtl.tensors import constants_in_use
from excessmtl.torch_private import copy_all, end_allocation_to_pool

R = TypeVar("R")
DRAWS = "the method draws random numbers on the host, which a recording would repeat"
WARM_UP = 3
"""Steps taken before the recording: libraries choose their kernels and workspaces in the first ones."""
MOST = 4
"""Recordings in a cache: a full batch, the last of an epoch, and a few with labels missing."""


class Recording(Generic[R]):
    """The kernels that `work` launches, to be launched again at once; making one runs none of them."""

    def __init__(self, work: Callable[[], R], stream: torch.cuda.Stream, pool: Any = None) -> None:
        self.graph = torch.cuda.CUDAGraph()
        torch.clear_autocast_cache()  # or the recording would go on with weights that were cast before it
        try:
            with captured(self.graph, stream, pool or torch.cuda.graph_pool_handle()), constants_in_use() as constants:
                self.constants = constants
                self.result = work()
        finally:
            torch.clear_autocast_cache()

    def replay(self) -> None:
        """Do the work once more, on the current stream; `result` is filled anew."""
        self.graph.replay()


@contextmanager
def captured(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> Iterator[None]:
    """Inside, what is asked of the device on this thread goes to `stream`, where it is not done but kept in `graph`.

    Nothing waits for the device. Afterwards the process is as it was before, whatever goes wrong on the way.
    """
    collecting = gc.isenabled()
    gc.disable()  # taking an old graph apart in the middle of a capture ends the capture
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=pool, capture_error_mode="relaxed")
            try:
                yield
            except BaseException:
                with suppress(Exception):  # the first error is the one to report
                    _end(graph, stream, pool)
                raise
            _end(graph, stream, pool)
    finally:
        if collecting:
            gc.enable()


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


def failure(error: Exception) -> str:
    """Why recording a step failed, in a line."""
    line = str(error).partition("\n")[0]
    if "legacy stream" in line:  # autograd goes on where it met the parameters first, as long as a graph remembers it
        line += "; a graph from outside is still alive: delete what holds it, losses and outputs of earlier steps"
    return f"recording one failed ({line})"


def kernel_settings() -> tuple[Any, ...]:
    """Settings of torch that decide which kernels an operation launches."""
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
    # torch 2.8 and older have one setting for all backends.
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None) or torch.get_float32_matmul_precision()
    return autocast, precision, torch.are_deterministic_algorithms_enabled()


def signature(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Equal for inputs that one recording serves."""
    return tuple([(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors])


def fill(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors to where others are: one kernel for each type. Nothing of how they were computed goes with them."""
    by_type: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        mine, others = by_type.setdefault(target.dtype, ([], []))
        mine.append(target)
        others.append(source)
    with torch.no_grad():
        for mine, others in by_type.values():
            copy_all(mine, others, non_blocking=True)


@dataclass(eq=False)
class Entry(Generic[R]):
    """Batches that one recording serves."""

    key: tuple[Any, ...]
    steps: int = 0
    recorded: R | None = None


class GraphCache(Generic[R]):
    """A few recordings by their keys; entries that were used long ago and never recorded make room."""

    def __init__(self) -> None:
        self.entries: list[Entry[R]] = []  # the latest last

    def entry(self, key: tuple[Any, ...]) -> Entry[R] | None:
        """The entry with this key; None where all that there may be are recorded, and this is none of them."""
        entry = next((entry for entry in reversed(self.entries) if entry.key == key), None) or Entry(key)
        others = [other for other in self.entries if other is not entry]
        if len(others) == MOST:
            dispensable = next((other for other in others if other.recorded is None), None)
            if dispensable is None:
                return None
            others.remove(dispensable)
        self.entries = [*others, entry]
        return entry
