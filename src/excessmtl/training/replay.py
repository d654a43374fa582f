"""A training step recorded once as a CUDA graph and replayed: small networks spend most of a step on launching kernels.

Everything a step reads or writes keeps its place in device memory: the order of the epoch's samples and a cursor into
it, parameters, gradients, the optimiser's and the balancer's state, and a log with a row per step. A replayed step
does what the step itself would have done, kernel by kernel; the host says "again" and waits for nothing.
"""

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from excessmtl.balancer import Balancer
from excessmtl.step import Step
from excessmtl.training.batches import Batch, Batches, Orders

TrainStep = Callable[[Batch], Step]
_WARM_UP = 3
"""Steps taken before the recording: libraries choose their kernels and workspaces in the first ones."""
LOGGED = ("weights", "losses", "excess_risks")


class Replay:
    """Runs epochs of `step` on `batches`: the first steps as they are, the others from the recording."""

    def __init__(self, step: TrainStep, batches: Batches, balancer: Balancer | None) -> None:
        self.step, self.batches, self.balancer = step, batches, balancer
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.cursor = torch.zeros(1, dtype=torch.int64, device=batches.device)
        self.orders: Orders = {}
        self.log = torch.empty(0)
        self.places: dict[str, Tensor] = {}
        self.graph: torch.cuda.CUDAGraph | None = None
        self.taken = 0
        self.recordable = True
        self.result: Step

    def epoch(self, orders: Orders) -> Iterator[Step]:
        """Train on the rows `orders` names, step after step; `log` [steps, 3, m] then has a line for each.

        Yields what a step returns. It is one object with one set of tensors, which the next replay fills anew.
        """
        steps = len(next(iter(orders.values())))
        if self.graph is None:
            self.orders = orders
        else:
            for task, order in self.orders.items():
                order.copy_(orders[task])
        self.cursor.zero_()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(steps):
                if self.graph is not None:
                    self.graph.replay()
                    if self.balancer is not None:
                        self.balancer.count_replayed()
                elif self.taken < _WARM_UP or not self.recordable:
                    self._once()
                else:
                    self._record()
                self.taken += 1
                yield self.result
        torch.cuda.current_stream().wait_stream(self.stream)

    def settle(self) -> None:
        """Call where the balancer's state was replaced between two steps: the recording knows the old places only."""
        if self.balancer is not None and self.places:
            self.balancer.settle(self.places)

    def _once(self) -> None:
        rows = {task: order.index_select(0, self.cursor).squeeze(0) for task, order in self.orders.items()}
        self.result = self.step(self.batches.select(rows))
        line = torch.stack([getattr(self.result, name).float() for name in LOGGED])
        if not self.log.numel():
            steps = len(next(iter(self.orders.values())))
            self.log = torch.full((steps, *line.shape), torch.nan, device=line.device)
        self.log.index_copy_(0, self.cursor, line[None])
        self.cursor += 1

    def _record(self) -> None:
        graph = torch.cuda.CUDAGraph()
        places = {} if self.balancer is None else dict(self.balancer.named_buffers())
        counter = None if self.balancer is None else self.balancer.get_extra_state()
        try:
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self._once()
                if self.balancer is not None:
                    self.balancer.settle(places)
        except RuntimeError as error:
            # While recording no kernel runs: what lies on the device is as it was, only Python has gone ahead.
            reason = str(error).partition("\n")[0]
            warnings.warn(f"steps are not replayed: recording one failed ({reason})", stacklevel=2)
            self.recordable = False
            if self.balancer is not None and counter is not None:
                self.balancer.use(places)
                self.balancer.set_extra_state(counter)
            self._once()
            return
        self.graph, self.places = graph, places
        graph.replay()
