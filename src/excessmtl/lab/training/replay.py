"""A training step recorded once as a CUDA graph and replayed: small networks spend most of a step on launching kernels.

Everything a step reads or writes keeps its place in device memory: the order of the epoch's samples and a cursor into
it, parameters, gradients, the optimiser's and the balancer's state, and a log with a row per step. A replayed step
does what the step itself would have done, kernel by kernel; the host says "again" and waits for nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from excessmtl.balancer import Balancer
from excessmtl.lab.training.batches import Batch, OrderedBatches, Rows
from excessmtl.lab.training.learner import LOGGED
from excessmtl.recording.recording import DRAWS, WARM_UP, Recording, failure
from excessmtl.step.result import Step
from excessmtl.step.run import note
from excessmtl.step.state import Memory
from excessmtl.warn import warn

TrainStep = Callable[[Batch], Step]


class RecordedStep(Recording[None]):
    """A whole training step. What a balancer keeps on the host is not moved by recording it, but by every replay."""

    def __init__(self, step: Callable[[], None], memory: Memory | None, stream: torch.cuda.Stream) -> None:
        self._memory = memory
        before = None if memory is None else (memory.steps, memory.generator.get_state())
        try:
            super().__init__(step, stream)
            if memory is not None and before is not None and not memory.generator.get_state().equal(before[1]):
                raise ValueError(DRAWS)
        finally:
            if memory is not None and before is not None:
                memory.steps = before[0]
                memory.generator.set_state(before[1])

    def replay(self) -> None:
        """Take the step once more."""
        super().replay()
        if self._memory is not None:
            self._memory.steps += 1


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


class ReplayedEpochs:
    """Runs epochs of `step` on `batches`: the first steps as they are, the others from the recording."""

    def __init__(self, step: TrainStep, batches: OrderedBatches, balancer: Balancer | None) -> None:
        self.step, self.batches, self.balancer = step, batches, balancer
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.cursor = torch.zeros(1, dtype=torch.int64, device=batches.device)
        self.orders: Rows = {}
        self.log = torch.empty(0)
        self.recording: RecordedStep | None = None
        self.taken = 0
        self.recordable = True
        self.result: Step

    def epoch(self, orders: Rows) -> Iterator[Step]:
        """Train on the rows `orders` names, step after step; `log` [steps, 3, m] then has a line for each.

        Yields what a step returns. It is one object with one set of tensors, which the next replay fills anew.
        """
        steps = len(next(iter(orders.values())))
        if self.recording is None:
            self.orders = orders
        else:
            for task, order in self.orders.items():
                order.copy_(orders[task])
        self.cursor.zero_()
        with on_stream(self.stream, self.batches.device):
            for _ in range(steps):
                if self.recording is not None:
                    self._replay(self.recording)
                elif self.taken < WARM_UP or not self.recordable:
                    self._once()
                else:
                    self._record()
                self.taken += 1
                yield self.result

    def _once(self) -> None:
        rows = {task: order.index_select(0, self.cursor).squeeze(0) for task, order in self.orders.items()}
        self.result = self.step(self.batches.select(rows))
        line = self.result.numbers[: len(LOGGED)]
        if not self.log.numel():
            steps = len(next(iter(self.orders.values())))
            self.log = torch.full((steps, *line.shape), torch.nan, device=line.device)
        self.log.index_copy_(0, self.cursor, line[None])
        self.cursor += 1

    def _record(self) -> None:
        memory = None if self.balancer is None else self.balancer.memory
        try:
            self.recording = RecordedStep(self._once, memory, self.stream)
        except RuntimeError as error:
            warn(f"steps are not replayed: {failure(error)}")
            self.recordable = False
            self._once()
            return
        self._replay(self.recording)

    def _replay(self, recording: RecordedStep) -> None:
        recording.replay()
        if self.balancer is not None:
            note(self.balancer, self.result)
