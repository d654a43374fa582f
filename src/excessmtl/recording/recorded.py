"""What a balancer computes between the two backward passes of a step, as a CUDA graph: one launch, not a hundred.

That part of a step is a pure function of the gradients and of the balancer's state, and a change of that state
afterwards. Both are recorded. The backward passes stay as they are, so nothing is asked of the training loop.
(`excessmtl.Replay` records whole steps, and asks that they be given to it as a function.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from excessmtl.gradients.task_gradients import TaskGradients
from excessmtl.gradients.ways import AnyGraph, Fastest, Key
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.plan import Plan
from excessmtl.graph.representation import Representation
from excessmtl.recording.cache import GraphCache, settings
from excessmtl.recording.recording import WARM_UP, Recording, check_no_draws, failure
from excessmtl.recording.results import Results
from excessmtl.recording.static_inputs import Arguments, StaticInputs
from excessmtl.step.result import Outcome, Step
from excessmtl.warn import warn

Decide = Callable[[TaskGradients], Outcome]
_LARGEST = 2**28
"""Bytes of all inputs. Larger ones take the device longer than launching its work takes the host.

A BERT-sized trunk with three heads on its sequence (100 MB): x1.08 of a plain step with a recording, x1.17 without."""


@dataclass(frozen=True)
class _RecordedDecision:
    inputs: StaticInputs
    decide: Recording[tuple[Results, Outcome]]
    write: Recording[None]
    targets: list[Tensor | None]
    """Where each gradient goes: to a leaf, or (None) to the representation."""

    def outcome(self, z: Representation, tensors: list[Tensor]) -> Outcome:
        """For another batch that looks the same."""
        self.inputs.fill(tensors)
        self.decide.replay()
        gradients, recorded = self.decide.result
        targets = (z if target is None else target for target in self.targets)
        # The numbers get memory of their own: whoever keeps the steps of a training must not keep its gradients too.
        step = Step(recorded.step.tasks, recorded.step.numbers.clone())
        return Outcome(list(zip(targets, gradients.copies(), strict=True)), step, self.write.replay)


class Recorded(AnyGraph):
    """The fastest ways with the decisions recorded: the first few times with a kind of batch as they are.

    Belongs to one balancer. Recordings are not copied with it: they are bound to the memory they were made in.
    """

    def __init__(self, fast: Fastest) -> None:
        self.fast = fast
        self.failed: str | None = None
        """Why nothing is recorded any more, if so."""
        self.cache: GraphCache[_RecordedDecision] = GraphCache()
        self._stream: torch.cuda.Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"fast": self.fast, "failed": None, "cache": GraphCache(), "_stream": None}

    def plan(self, inputs: StepInputs) -> Plan:
        """That of the fastest way."""
        return self.fast.plan(inputs)

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """By the fastest way."""
        return self.fast.task_gradients(plan)

    def forget(self) -> None:
        """Drop all recordings: the state they read has moved."""
        self.cache = GraphCache()

    def evaluate(self, function: Any, gradients: TaskGradients, plan: Plan, key: Key) -> Any:
        """`function(gradients)`, from a recording where there is one."""
        tensors = None if self.failed or plan.second_backward else gradients.tensors
        if tensors is None or not records_on(tensors[0].device) or not can_record(tensors):
            return self._eagerly(function, gradients, plan, key)
        if (equal_for_equal_steps := key()) is None:
            return self._eagerly(function, gradients, plan, key)
        looks = [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors]
        entry = self.cache.entry((equal_for_equal_steps, settings(), gradients.layout, looks))
        if entry is None:
            return self._eagerly(function, gradients, plan, key)
        if entry.recorded is None and entry.taken >= WARM_UP:
            entry.recorded = self._record(function, gradients, tensors)
        if entry.recorded is not None:
            return entry.recorded.outcome(gradients.at_z[0].representation, tensors)
        outcome = self._eagerly(function, gradients, plan, key)
        entry.taken += 1  # now: a batch that is refused is none that a recording could be made for
        return outcome

    def _eagerly(self, function: Decide, gradients: TaskGradients, plan: Plan, key: Key) -> Outcome:
        outcome: Outcome = self.fast.evaluate(function, gradients, plan, key)
        return outcome

    def _record(self, function: Decide, gradients: TaskGradients, tensors: list[Tensor]) -> _RecordedDecision | None:
        device = tensors[0].device
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        targets: list[Tensor | None] = []

        def decide() -> tuple[Results, Outcome]:
            outcome = function(gradients.with_tensors(inputs.arguments[0]))
            check_no_draws(outcome.generator is None)
            parts, outcome.parts = outcome.parts, []
            targets[:] = [None if isinstance(target, Representation) else target for target, _ in parts]
            return Results([gradient for _, gradient in parts]), outcome

        def write() -> None:
            decision.result[1].write()

        try:
            inputs, pool = StaticInputs(Arguments((tensors,)), device), torch.cuda.graph_pool_handle()
            decision = Recording(decide, None, self._stream, pool)
            writing = Recording(write, None, self._stream, pool)
        except Exception as error:  # if the step itself is to blame, taking it as it is will tell
            self.failed = failure(error)
            warn(f"the balancer's arithmetic is not replayed: {self.failed}")
            return None
        return _RecordedDecision(inputs, decision, writing, targets)


def records_on(device: torch.device) -> bool:
    """Whether there are CUDA graphs on this device, and somebody else is not making one."""
    return device.type == "cuda" and torch.version.hip is None and not torch.cuda.is_current_stream_capturing()


def can_record(tensors: list[Tensor]) -> bool:
    """On one device, and not too much."""
    return small_enough(tensors) and all(tensor.device == tensors[0].device for tensor in tensors)


def small_enough(tensors: list[Tensor]) -> bool:
    """Whether copying them takes less time than a recording saves."""
    return sum([tensor.nbytes for tensor in tensors]) <= _LARGEST


EngineName = Literal["fast", "reference"]


def chosen_ways(engine: EngineName | AnyGraph, probe: Probe, tasks_at_once: Any, record: bool) -> AnyGraph:
    """What the options `engine`, `tasks_at_once` and `record` of a balancer stand for."""
    if tasks_at_once is not None and not probe.to_the_end:
        raise ValueError("tasks_at_once is not used by this method as it is set up here; leave it out")
    if tasks_at_once is not None and (not isinstance(tasks_at_once, int) or tasks_at_once < 1):
        raise ValueError(f"tasks_at_once must be a whole number of tasks, at least 1, found {tasks_at_once!r}")
    if not isinstance(engine, str):
        if isinstance(engine, type) or not hasattr(engine, "task_gradients"):
            raise ValueError(f"engine must be 'fast', 'reference' or an engine, found {engine!r}")
        if tasks_at_once is not None:
            raise ValueError("tasks_at_once has no effect on an engine that was made already; pass it to the engine")
        if not record and isinstance(engine, Recorded):
            raise ValueError("record=False has no effect on what records already; pass the Fastest that it holds")
        return engine
    if engine == "fast":
        fast = Fastest(tasks_at_once)
        return Recorded(fast) if record else fast
    if engine != "reference":
        raise ValueError(f"engine must be 'fast' or 'reference', found {engine!r}")
    if tasks_at_once:
        raise ValueError("tasks_at_once is an option of engine='fast', found engine='reference'; leave it out")
    return AnyGraph()
