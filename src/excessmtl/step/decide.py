"""From the gradients of a step to its outcome: what the rule is shown, its decision, the combined gradient."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from excessmtl.distributed.processes import mean_where, no_reduction, over_processes, processes
from excessmtl.gradients.samples import Samples
from excessmtl.gradients.task_gradients import Contribution, TaskGradients
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.representation import Representation
from excessmtl.methods.base import Decision, Heads, Rule
from excessmtl.methods.observation import Observation
from excessmtl.step.arguments import validation_losses
from excessmtl.step.multipliers import Floors, multipliers
from excessmtl.step.result import Outcome, Step
from excessmtl.step.state import Memory, RandomStream
from excessmtl.step.validation import validation_products
from excessmtl.tensors import autocast_disabled, filled, split_by_parameter, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """A function of the gradients of one (micro-)batch; its fields are all that it depends on besides. Nothing changes.

    The outcome holds what to write into `.grad`, and how to write the new state. A step that fails before both are
    written has left no trace.
    """

    inputs: StepInputs
    rule: Rule
    memory: Memory
    offsets: tuple[int, ...]
    """Where each shared parameter begins among all of them."""
    pending: Sequence[TaskGradients]
    """The earlier micro-batches of this step."""
    losses_so_far: Tensor | None
    """[m] the sum of their losses."""
    estimating: bool
    """Whether the rule is asked in this step (`every`)."""
    heads: Heads
    factor: float
    floors: Floors | None
    scalar: bool
    """Whether the value of the weighted sum is wanted as well."""

    def __call__(self, gradients: TaskGradients) -> Outcome:
        """The whole step, given the gradients."""
        memory = self.memory
        stream = memory.random_stream()
        with autocast_disabled(gradients.values):
            decision, weights = self._ask_rule(gradients, stream)
            applied = multipliers(weights, self.factor, self.floors)
            parts = self._combine(gradients, applied, None if decision is None else decision.gates)
            if decision is not None and decision.direction is not None:
                parts = _along(decision.direction * self.factor, gradients, parts)
        zero = filled(0, len(applied), applied.device)
        in_a_row = torch.where(gradients.ok, zero, memory.in_a_row + gradients.skipped)
        step = self._report(gradients, applied, None if decision is None else decision.excess_risks, in_a_row)
        write = partial(memory.write, left_out=gradients.skipped, in_a_row=in_a_row)
        if decision is not None:
            write = partial(write, decision.state, decision.weights, finish=decision.finish)
        value = torch.where(gradients.ok, gradients.values * applied, zero).sum() if self.scalar else None
        waiting = self._waiting(gradients) if self.inputs.accumulate else None
        return Outcome(parts, step, write, value, stream.used, waiting)

    def _ask_rule(self, gradients: TaskGradients, stream: RandomStream) -> tuple[Decision | None, Tensor]:
        """What the rule decides, and the weights to apply to this batch."""
        inputs, before = self.inputs, self.memory.weights
        # With several micro-batches most rules are asked with the last one.
        if not self.estimating or (inputs.accumulate and not self.rule.gated):
            return None, before
        state = self.memory.state
        pending = [] if self.rule.gated else self.pending
        batches = [*pending, gradients]
        validation = None
        if "validation_losses" in inputs.extras:
            ordered = partial(validation_losses, tasks=inputs.tasks)
            ahead, own = self.rule.lookahead(state), self.rule.validates_heads
            validation = validation_products(inputs, batches, ahead, ordered, own)
        seen = observe(batches, inputs, offsets=self.offsets, validation=validation, random_stream=stream)
        decision = self.rule.update(state, seen)
        decided = torch.where(seen.ok, decision.weights, before).detach()
        late = bool(pending) and not self._held_back(gradients)
        return replace(decision, weights=decided), before if late else decided

    def _combine(self, gradients: TaskGradients, weights: Tensor, gates: Any) -> list[Contribution]:
        """The weighted sum of the gradients to deliver now."""
        if gates is not None and self.factor != 1:
            gates = tuple(tuple(gate * self.factor for gate in task) for task in gates)
        batches = [gradients]
        if self._held_back(gradients):
            batches = (
                [] if self.inputs.accumulate else [*(batch for batch in self.pending if batch.complete), gradients]
            )
        own = weights if self.heads == "weighted" else None
        return [part for batch in batches for part in batch.weighted_sum(weights, own, gates)]

    def _report(self, gradients: TaskGradients, weights: Tensor, risks: Tensor | None, in_a_row: Tensor) -> Step:
        values, left_out = gradients.values, gradients.skipped
        nothing = filled(torch.nan, len(values), values.device)
        losses = values if gradients.all_labelled else torch.where(gradients.labelled, values, nothing)
        if self.losses_so_far is not None:
            losses = _sum_of_known(self.losses_so_far, losses)
        risks = nothing if risks is None else torch.where(gradients.ok, risks, nothing)
        zero = filled(0, len(values), values.device)
        counts = torch.where(left_out, in_a_row, zero)
        return Step(self.inputs.tasks, torch.stack((torch.where(left_out, zero, weights), losses, risks, counts)))

    def _waiting(self, gradients: TaskGradients) -> TaskGradients | None:
        """What the last micro-batch is going to need of this one; large gradients that nobody needs are dropped."""
        if self.rule.gated or not self.estimating:
            return None
        if self._held_back(gradients):
            return gradients.held_back()
        return gradients.statistics() if self.inputs.probe.at_representation else gradients.numbers()

    def _held_back(self, gradients: TaskGradients) -> bool:
        """Whether gradients of micro-batches wait for the last one, to be given the weights of all of them."""
        return gradients.complete and self.inputs.probe.to_the_end


def _along(direction: Tensor, gradients: TaskGradients, parts: list[Contribution]) -> list[Contribution]:
    """The combined gradient with a direction of the rule's own, at the representation or on the shared parameters."""
    if gradients.scale is not None:
        direction = direction * gradients.scale
    if gradients.overflow is not None:
        direction = torch.where(gradients.overflow, torch.nan, direction)
    if not gradients.complete:
        return [(one, direction.to(part.dtype) if isinstance(one, Representation) else part) for one, part in parts]
    shared = {id(parameter) for parameter in gradients.parameters}
    along = split_by_parameter(direction, gradients.parameters)
    pairs = zip(gradients.parameters, along, strict=True)
    own = [(target, gradient) for target, gradient in parts if id(target) not in shared]
    return [*own, *((leaf, part.view(leaf.shape).to(leaf.dtype)) for leaf, part in pairs)]


def _sum_of_known(left: Tensor, right: Tensor) -> Tensor:
    """Their sum; where one of them is NaN, the other."""
    return torch.where(left.isnan(), right, torch.where(right.isnan(), left, left + right))


def observe(
    batches: Sequence[TaskGradients],
    inputs: StepInputs,
    *,
    offsets: tuple[int, ...],
    validation: tuple[Tensor, Tensor] | None,
    random_stream: Callable[[], Generator],
) -> Observation:
    """All micro-batches of a step, on all processes, as the one observation the rule asked for.

    `offsets`: where each shared parameter starts when all of them stand side by side. `validation`: products with the
    validation gradients, and the validation losses.
    """
    probe, reduction, latest = inputs.probe, inputs.reduction, batches[-1]
    local = probe.at_representation
    rows: tuple[Tensor, ...] = ()
    matrix: Tensor | None = None
    if local and not inputs.per_sample:
        rows = tuple(row for batch in batches for row in batch.rows_at_representation())
    elif probe.at_parameters:
        wanted = latest.parameters if probe.to_the_end else probe.parameters(inputs.shared)
        matrix = total([batch.matrix_of(wanted) for batch in batches]).float()
        matrix = matrix if reduction is no_reduction else over_processes(matrix) / processes()
        rows = split_by_parameter(matrix, wanted)
    zero = filled(0, len(latest.values), latest.values.device)
    losses = total([torch.where(batch.ok, batch.values, zero) for batch in batches])
    ok = latest.ok if len(batches) == 1 else torch.stack([batch.ok for batch in batches]).any(0)
    metrics = inputs.extras.get("metrics")
    cross, validation_losses = (None, None) if validation is None else validation
    if reduction is not no_reduction:
        count = processes()
        losses, ok = mean_where(losses, ok, reduction)
        rows = tuple(row / count for row in rows) if local else rows
        cross = None if cross is None else reduction(cross) / count
        validation_losses = None if validation_losses is None else reduction(validation_losses) / count
        metrics = None if metrics is None else mean_where(metrics, ~metrics.isnan(), reduction)[0]
    everywhere = [i for i, parameter in enumerate(inputs.all_parameters) if parameter.requires_grad]
    positions = tuple(everywhere) if probe.to_the_end else ()
    return Observation(
        losses=losses,
        ok=ok,
        rows=tuple(row.float() for row in rows),
        matrix=matrix if probe.to_the_end else None,
        positions=positions,
        offsets=tuple(offsets[position] for position in positions),
        samples=lambda task: [part for number, batch in enumerate(batches) for part in batch.samples(task, number)],
        samples_of_all=_samples_of_all(batches) if local and inputs.per_sample else (),
        heads=not latest.headless,
        extras=inputs.extras,
        metrics=metrics,
        cross=cross,
        validation_losses=validation_losses,
        random_stream=random_stream,
        reduction=reduction,
        local_rows=local,
    )


def _samples_of_all(batches: Sequence[TaskGradients]) -> list[Samples]:
    samples = [batch.samples_of_all() for batch in batches]
    complete = [batch for batch in samples if batch is not None]
    return complete if len(complete) == len(samples) else []
