"""Work on a device recorded once as a CUDA graph, with a balancer's state kept where the graph looks for it."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch

from excessmtl.constants import held
from excessmtl.recording.capture import captured
from excessmtl.state import StatefulModule

R = TypeVar("R")
WARM_UP = 3
"""Steps taken before the recording: libraries choose their kernels and workspaces in the first ones."""


class Recording(Generic[R]):
    """The kernels that `work` launches, to be launched again at once; making one runs none of them.

    Whatever goes wrong, the balancer is afterwards as it was, and the error goes on to the caller.
    """

    def __init__(
        self, work: Callable[[], R], balancer: StatefulModule | None, stream: torch.cuda.Stream, pool: Any = None
    ) -> None:
        self._balancer = None if balancer is None else weakref.ref(balancer)  # which may hold the recording
        self.places = {} if balancer is None else dict(balancer.named_buffers())
        self.graph = torch.cuda.CUDAGraph()
        counters = None if balancer is None else balancer.get_extra_state()
        torch.clear_autocast_cache()  # or the recording would go on with weights that were cast before it
        try:
            with captured(self.graph, stream, pool or torch.cuda.graph_pool_handle()), held() as self.constants:
                self.result = work()
                if balancer is not None and counters is not None:
                    if not torch.equal(balancer.get_extra_state()["random"], counters["random"]):
                        raise ValueError("the method draws random numbers on the host, which a recording would repeat")
                    balancer.settle(self.places)
        finally:
            torch.clear_autocast_cache()
            # What lies on the device is as it was: only Python has gone ahead.
            if balancer is not None and counters is not None:
                balancer.use(self.places)
                balancer.set_extra_state(counters)

    def replay(self) -> None:
        """Do the work once more, on the current stream; `result` is filled anew."""
        balancer = None if self._balancer is None else self._balancer()
        if balancer is None:
            self.graph.replay()
            return
        balancer.settle(self.places)  # `end_epoch` or steps in between may have put the state elsewhere
        self.graph.replay()
        balancer.count_replayed()


@contextmanager
def beside(stream: torch.cuda.Stream, device: torch.device) -> Iterator[None]:
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
