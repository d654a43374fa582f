"""What a balancer computes between the two backward passes of a step, as a CUDA graph: one launch, not a hundred.

It is a pure function of the gradients and of the balancer's state, and a change of that state afterwards. Both are
recorded. The backward passes stay as they are, so nothing is asked of the training loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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

    recorded_on = frozenset({"cuda"})

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

    def replayed(self, decide: Any, gradients: TaskGradients, plan: Plan, key: Key) -> Any:
        """`decide(gradients)`, from a recording where there is one."""
        tensors = [] if self.failed or plan.second_backward else tensors_of(gradients)
        of_step = key() if tensors and can_record(tensors) else None
        entry = None
        if of_step is not None:
            entry = self.cache.entry((of_step, kernel_settings(), layout_of(gradients), signature(tensors)))
        if entry is not None and entry.recorded is None and entry.steps >= WARM_UP:
            entry.recorded = self._record(decide, gradients, tensors)
        if entry is not None and entry.recorded is not None:
            return entry.recorded.outcome(gradients.at_z[0].representation, tensors)
        del tensors  # while a decision is made, gradients are let go one by one
        outcome = decide(gradients)
        if entry is not None:
            entry.steps += 1  # now: a batch that is refused is none that a recording could be made for
        return outcome

    def _record(
        self, decide: Callable[[TaskGradients], Outcome], gradients: TaskGradients, tensors: list[Tensor]
    ) -> _RecordedDecision | None:
        device = tensors[0].device
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

        def work() -> Outcome:
            outcome = decide(made_of(inputs, gradients))
            if outcome.generator is not None:
                raise ValueError(DRAWS)
            return outcome

        try:
            inputs, pool = [torch.empty_like(tensor) for tensor in tensors], torch.cuda.graph_pool_handle()
            fill(inputs, tensors)
            decision = Recording(work, self._stream, pool)
            writing = Recording(lambda: decision.result.write(), self._stream, pool)
            return _RecordedDecision(inputs, decision, writing)
        except Exception as error:  # if the step itself is to blame, taking it eagerly will tell
            self.failed = failure(error)
            warn(f"the balancer's arithmetic is not replayed: {self.failed}")
            return None


def tensors_of(gradients: TaskGradients) -> list[Tensor]:
    """All tensors that a decision reads; none where a recording cannot read others in their place."""
    if len(gradients.at_z) != 1 or gradients.at_leaves:
        return []
    (part,) = gradients.at_z
    return [
        *(loss for loss in gradients.losses if loss is not None),
        part.representation.stored,
        *part.stored,
        *(group.gradients for group in gradients.groups),
        *(mask for mask in gradients.masks if mask is not None),
        *(() if gradients.at_parameters is None else (gradients.at_parameters,)),
    ]


def layout_of(gradients: TaskGradients) -> tuple[Any, ...]:
    """Everything but the tensors: equal for batches that take the same operations."""
    (part,) = gradients.at_z
    masked = tuple([mask is not None for mask in gradients.masks])
    groups = tuple([group.layout for group in gradients.groups])
    parts = type(part).__name__, part.layout, groups
    return gradients.present, masked, *parts, gradients.complete, tuple(map(id, gradients.parameters))


def made_of(tensors: Sequence[Tensor], gradients: TaskGradients) -> TaskGradients:
    """The same batch made of other tensors, in the order of `tensors_of`, without an autograd graph."""
    remaining = iter(tensors)
    losses = [None if loss is None else next(remaining) for loss in gradients.losses]
    (part,) = gradients.at_z
    z = next(remaining)
    at_z = [part.with_stored(z, [next(remaining) for _ in part.stored])]
    groups = [group.with_stored(next(remaining)) for group in gradients.groups]
    masks = [None if mask is None else next(remaining) for mask in gradients.masks]
    matrix = None if gradients.at_parameters is None else next(remaining)
    return replace(gradients, losses=losses, masks=masks, at_z=at_z, groups=groups, at_parameters=matrix, _zeroed=False)


def records_on(device: torch.device) -> bool:
    """Whether there are CUDA graphs on this device, and somebody else is not making one."""
    return device.type == "cuda" and torch.version.hip is None and not torch.cuda.is_current_stream_capturing()


def can_record(tensors: list[Tensor]) -> bool:
    """On one device, and not so much that copying takes longer than a recording saves."""
    device = tensors[0].device
    small = sum([tensor.nbytes for tensor in tensors]) <= _LARGEST
    return small and records_on(device) and all(tensor.device == device for tensor in tensors)
