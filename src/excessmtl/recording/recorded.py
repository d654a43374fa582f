"""What a balancer computes between the two backward passes of a step, as a CUDA graph: one launch, not a hundred.

It is a pure function of the gradients and of the balancer's state, and a change of that state afterwards. Both are
recorded. The backward passes stay as they are, so nothing is asked of the training loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.any_graph import Key
from excessmtl.gradients.one_pass import WAYS, Fastest
from excessmtl.gradients.task_gradients import TaskGradients
from excessmtl.graph.plan import Plan
from excessmtl.graph.representation import Representation
from excessmtl.recording.recording import (
    DRAWS,
    WARM_UP,
    GraphCache,
    Recording,
    failure,
    fill,
    kernel_settings,
    signature,
)
from excessmtl.step.result import Outcome, Step
from excessmtl.torch_private import clone_all
from excessmtl.warn import warn

_LARGEST = 2**28
"""Bytes of all inputs. Larger ones take the device longer than launching its work takes the host; 100 MB do not."""


@dataclass(frozen=True)
class _RecordedDecision:
    static_inputs: list[Tensor]
    decide: Recording[Outcome]
    write: Recording[None]

    def outcome(self, z: Representation, tensors: list[Tensor]) -> Outcome:
        """For another batch with the same signature."""
        fill(self.static_inputs, tensors)
        self.decide.replay()
        recorded = self.decide.result
        targets = [z if isinstance(target, Representation) else target for target, _ in recorded.parts]
        gradients = clone_all([gradient for _, gradient in recorded.parts])
        step = Step(recorded.step.tasks, recorded.step.numbers.clone())
        return Outcome(list(zip(targets, gradients, strict=True)), step, self.write.replay)


class Recorded(Fastest):
    """The fastest ways with the decisions recorded; the first few with each signature are taken eagerly.

    Belongs to one balancer. Recordings are not copied with it: they are bound to the memory they were made in.
    """

    def __init__(self, tasks_at_once: int | None = None, ways: frozenset[str] = WAYS) -> None:
        super().__init__(tasks_at_once, ways)
        self.failed: str | None = None
        """Why nothing is recorded any more, if so."""
        self.cache: GraphCache[_RecordedDecision] = GraphCache()
        self._stream: torch.cuda.Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "failed": None, "cache": GraphCache(), "_stream": None}

    def forget(self) -> None:
        """Drop all recordings: the state they read has moved."""
        self.cache = GraphCache()

    def evaluate(self, function: Any, gradients: TaskGradients, plan: Plan, key: Key) -> Any:
        """`function(gradients)`, from a recording where there is one."""
        tensors = None if self.failed or plan.second_backward else gradients.tensors
        of_step = key() if tensors is not None and can_record(tensors) else None
        if tensors is None or of_step is None:
            return super().evaluate(function, gradients, plan, key)
        entry = self.cache.entry((of_step, kernel_settings(), gradients.layout, signature(tensors)))
        if entry is None:
            return super().evaluate(function, gradients, plan, key)
        if entry.recorded is None and entry.steps >= WARM_UP:
            entry.recorded = self._record(function, gradients, tensors)
        if entry.recorded is not None:
            return entry.recorded.outcome(gradients.at_z[0].representation, tensors)
        outcome = super().evaluate(function, gradients, plan, key)
        entry.steps += 1  # now: a batch that is refused is none that a recording could be made for
        return outcome

    def _record(
        self, function: Callable[[TaskGradients], Outcome], gradients: TaskGradients, tensors: list[Tensor]
    ) -> _RecordedDecision | None:
        device = tensors[0].device
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

        def decide() -> Outcome:
            outcome = function(gradients.with_tensors(inputs))
            if outcome.generator is not None:
                raise ValueError(DRAWS)
            return outcome

        try:
            inputs, pool = [torch.empty_like(tensor) for tensor in tensors], torch.cuda.graph_pool_handle()
            fill(inputs, tensors)
            decision = Recording(decide, None, self._stream, pool)
            writing = Recording(lambda: decision.result.write(), None, self._stream, pool)
            return _RecordedDecision(inputs, decision, writing)
        except Exception as error:  # if the step itself is to blame, taking it eagerly will tell
            self.failed = failure(error)
            warn(f"the balancer's arithmetic is not replayed: {self.failed}")
            return None


def records_on(device: torch.device) -> bool:
    """Whether there are CUDA graphs on this device, and somebody else is not making one."""
    return device.type == "cuda" and torch.version.hip is None and not torch.cuda.is_current_stream_capturing()


def can_record(tensors: list[Tensor]) -> bool:
    """On one device, and not so much that copying takes longer than a recording saves."""
    device = tensors[0].device
    if not records_on(device) or sum([tensor.nbytes for tensor in tensors]) > _LARGEST:
        return False
    return all(tensor.device == device for tensor in tensors)
