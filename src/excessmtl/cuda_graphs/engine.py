"""What a balancer computes between the two backward passes of a step, as a CUDA graph: one launch, not a hundred.

That part of a step is a pure function of the gradients and of the balancer's state, and a change of that state
afterwards. Both are recorded. The backward passes stay as they are, so nothing is asked of the training loop.
(`excessmtl.Replay` records whole steps, and asks that they be given to it as a function.)
"""

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from excessmtl.cuda_graphs.cache import GraphCache, settings
from excessmtl.cuda_graphs.recording import WARM_UP, Recording, check_no_draws, failure
from excessmtl.cuda_graphs.results import Results
from excessmtl.cuda_graphs.static_inputs import Arguments, StaticInputs
from excessmtl.engine.plan import Call, Plan
from excessmtl.engine.reference import Key
from excessmtl.engine.representation import Representation
from excessmtl.engine.task_gradients import TaskGradients
from excessmtl.fast.batched import BatchedHeads
from excessmtl.fast.engine import FastEngine
from excessmtl.step import Outcome, Step

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


class GraphedEngine:
    """The fast engine with its decisions recorded: the first few times with a kind of batch as they are.

    Belongs to one balancer. Recordings are not copied with it: they are bound to the memory they were made in.
    """

    def __init__(self, fast: FastEngine) -> None:
        self.fast = fast
        self.failed: str | None = None
        """Why nothing is recorded any more, if so."""
        self.cache: GraphCache[_RecordedDecision] = GraphCache()
        self._stream: torch.cuda.Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"fast": self.fast, "failed": None, "cache": GraphCache(), "_stream": None}

    def plan(self, call: Call) -> Plan:
        """That of the fast engine."""
        return self.fast.plan(call)

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """Those of the fast engine."""
        return self.fast.task_gradients(plan)

    def forget(self) -> None:
        """Drop all recordings: the state they read has moved."""
        self.cache = GraphCache()

    def evaluate(self, function: Decide, gradients: TaskGradients, plan: Plan, key: Key) -> Outcome:
        """`function(gradients)`, from a recording where there is one."""
        heads = gradients.heads
        if self.failed or not isinstance(heads, BatchedHeads):
            return self._eagerly(function, gradients, plan, key)
        if plan.second_backward or not records_on(heads.representation.stored.device) or (found := key()) is None:
            return self._eagerly(function, gradients, plan, key)
        tensors = _tensors(gradients, heads)
        if not can_record(tensors):
            return self._eagerly(function, gradients, plan, key)
        looks = [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors]
        entry = self.cache.entry((found, settings(), _layout(gradients, heads), looks))
        if entry is None:
            return self._eagerly(function, gradients, plan, key)
        if entry.recorded is None and entry.taken >= WARM_UP:
            entry.recorded = self._record(function, gradients, heads, tensors)
        if entry.recorded is not None:
            return entry.recorded.outcome(heads.representation, tensors)
        outcome = self._eagerly(function, gradients, plan, key)
        entry.taken += 1  # now: a batch that is refused is none that a recording could be made for
        return outcome

    def _eagerly(self, function: Decide, gradients: TaskGradients, plan: Plan, key: Key) -> Outcome:
        outcome: Outcome = self.fast.evaluate(function, gradients, plan, key)
        return outcome

    def _record(
        self, function: Decide, gradients: TaskGradients, heads: BatchedHeads, tensors: list[Tensor]
    ) -> _RecordedDecision | None:
        device = tensors[0].device
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        targets: list[Tensor | None] = []

        def decide() -> tuple[Results, Outcome]:
            outcome = function(_with_tensors(gradients, heads, inputs.arguments[0]))
            check_no_draws(outcome.generator is None)
            parts, outcome.parts = outcome.parts or [], None
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
            warnings.warn(f"the balancer's arithmetic is not replayed: {self.failed}", stacklevel=4)
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


def _tensors(gradients: TaskGradients, heads: BatchedHeads) -> list[Tensor]:
    """All tensors that a decision reads, beside the balancer's state."""
    return [
        *(loss for loss in gradients.losses if loss is not None),
        heads.representation.stored,
        *heads.at_z.stored,
        *(group.gradients.flat for group in heads.groups),
        *(mask for mask in gradients.masks if mask is not None),
        *(() if gradients.at_parameters is None else (gradients.at_parameters,)),
    ]


def _layout(gradients: TaskGradients, heads: BatchedHeads) -> Hashable:
    """Everything but the tensors: equal for batches that take the same operations."""
    return (
        gradients.there,
        tuple([mask is not None for mask in gradients.masks]),
        type(heads.at_z).__name__,
        heads.at_z.layout,
        tuple([(tuple(map(id, group.leaves)), group.tasks, group.gradients.layout) for group in heads.groups]),
        heads.trunk_passed,
        tuple(map(id, gradients.parameters)),
    )


def _with_tensors(gradients: TaskGradients, heads: BatchedHeads, tensors: list[Tensor]) -> TaskGradients:
    """The same batch made of other tensors, in the order of `_tensors`, without an autograd graph."""
    remaining = iter(tensors)
    losses = [None if loss is None else next(remaining) for loss in gradients.losses]
    z = next(remaining)
    at_z = heads.at_z.with_stored(z, [next(remaining) for _ in heads.at_z.stored])
    groups = [replace(group, gradients=group.gradients.with_stored(z, [next(remaining)])) for group in heads.groups]
    masks = [None if mask is None else next(remaining) for mask in gradients.masks]
    at_parameters = None if gradients.at_parameters is None else next(remaining)
    moved = BatchedHeads(
        heads.representation.with_values(z), at_z, groups, heads.there, trunk_passed=heads.trunk_passed
    )
    return replace(gradients, losses=losses, masks=masks, heads=moved, at_parameters=at_parameters, _zeroed=False)
