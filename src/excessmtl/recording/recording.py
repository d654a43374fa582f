"""Work on a device recorded once as a CUDA graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch

from excessmtl.recording.capture import captured
from excessmtl.step.state import Memory
from excessmtl.tensors import constants_in_use

R = TypeVar("R")
WARM_UP = 3
"""Steps taken before the recording: libraries choose their kernels and workspaces in the first ones."""


class Recording(Generic[R]):
    """The kernels that `work` launches, to be launched again at once; making one runs none of them.

    `memory`: that of the balancer whose whole steps are recorded. Its step counter and random stream are on the host,
    so they are as they were after recording, and the counter moves with every replay.
    """

    def __init__(
        self, work: Callable[[], R], memory: Memory | None, stream: torch.cuda.Stream, pool: Any = None
    ) -> None:
        self._memory = memory
        self.graph = torch.cuda.CUDAGraph()
        before = None if memory is None else (memory.steps, memory.generator.get_state())
        torch.clear_autocast_cache()  # or the recording would go on with weights that were cast before it
        try:
            with captured(self.graph, stream, pool or torch.cuda.graph_pool_handle()), constants_in_use() as constants:
                self.constants = constants
                self.result = work()
            if memory is not None and before is not None:
                check_no_draws(torch.equal(memory.generator.get_state(), before[1]))
        finally:
            torch.clear_autocast_cache()
            if memory is not None and before is not None:
                memory.steps = before[0]
                memory.generator.set_state(before[1])

    def replay(self) -> None:
        """Do the work once more, on the current stream; `result` is filled anew."""
        self.graph.replay()
        if self._memory is not None:
            self._memory.steps += 1


def check_no_draws(unchanged: bool) -> None:
    """A ValueError where a rule has drawn random numbers on the host."""
    if not unchanged:
        raise ValueError("the method draws random numbers on the host, which a recording would repeat")


@contextmanager
def on_stream(stream: torch.cuda.Stream, device: torch.device) -> Iterator[None]:
    """Inside, work goes to `stream`: after all that was asked of the current one, and before all that will be.

    Steps that are going to be recorded have to run there too: autograd remembers on which stream it met a parameter.
    """
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        torch.cuda.current_stream(device).wait_stream(stream)


def failure(error: Exception) -> str:
    """Why recording a step failed, in a line."""
    line = str(error).partition("\n")[0]
    if "legacy stream" in line:  # autograd goes on where it met the parameters first, as long as a graph remembers it
        line += "; a graph from outside is still alive: delete what holds it, losses and outputs of earlier steps"
    return f"recording one failed ({line})"
