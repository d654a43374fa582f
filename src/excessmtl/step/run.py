"""One step of a balancer: `backward` and the scalar form share it.

Everything before `commit` changes nothing, so a step that fails leaves no trace.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from excessmtl.distributed.processes import mean_where, no_reduction, over_processes, processes
from excessmtl.gradients.any_graph import task_by_task
from excessmtl.gradients.losses_only import NotFinite
from excessmtl.gradients.task_gradients import Contribution, TaskGradients
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.plan import Plan
from excessmtl.graph.problems import SECOND_BACKWARD
from excessmtl.graph.representation import Representation
from excessmtl.methods.base import Decision, Heads
from excessmtl.methods.observation import Observation
from excessmtl.step.inputs import by_task, label_masks, ordered_losses
from excessmtl.step.multipliers import Floors, inverts, with_floors
from excessmtl.step.result import Outcome, Step
from excessmtl.step.state import RandomStream
from excessmtl.step.validation import validation_products
from excessmtl.tensors import autocast_disabled, filled, split_by_parameter, total

if TYPE_CHECKING:
    from excessmtl.balancer import Balancer


@contextmanager
def second_backward_explained() -> Iterator[None]:
    """Inside, a ValueError where the graph was freed: autograd's advice, `retain_graph=True`, is of no use here."""
    try:
        yield
    except RuntimeError as error:
        if "backward through the graph a second time" in str(error):
            raise ValueError(SECOND_BACKWARD) from error
        raise


def run(balancer: "Balancer", inputs: StepInputs, heads: Heads, scalar: bool) -> tuple[Plan, Outcome]:
    """The step up to its outcome: what the graph allows, the gradients of every task, the decision.

    Nothing has changed when it returns, and the gradients of the tasks, which may be large, are gone. `scalar`: whether
    the value of the weighted sum is wanted as well.
    """
    engine, rule, checks = balancer.engine, balancer.rule, balancer._checks
    unchecked = len(checks.checked) < len(balancer.tasks) or inputs.distributed or inputs.probe.partway
    if unchecked:
        checks.before(inputs, rule.name)
    plan = engine.plan(inputs)
    elsewhere = plan.graph.common and not plan.separate_heads  # tasks meet in other places than z
    if unchecked or (elsewhere and (plan.representations or plan.common_leaves)):
        checks.after(plan, rule.whole_model)
    gradients = engine.task_gradients(plan)
    outcome = partial(_outcome, balancer, inputs, heads, scalar, plan)
    device = next(loss.device for loss in inputs.losses if loss is not None)  # `values` would launch a kernel
    if scalar or device.type not in engine.recorded_on:
        return plan, outcome(gradients)
    return plan, engine.replayed(outcome, gradients, plan, partial(_key, balancer, inputs))


def _outcome(
    balancer: "Balancer", inputs: StepInputs, heads: Heads, scalar: bool, plan: Plan, gradients: TaskGradients
) -> Outcome:
    """What `decide` says; task by task where one backward pass for all met something that is not finite."""
    try:
        return decide(balancer, inputs, heads, scalar, gradients)
    except NotFinite:
        return decide(balancer, inputs, heads, scalar, task_by_task(replace(plan, overlap=True)))


def decide(balancer: "Balancer", inputs: StepInputs, heads: Heads, scalar: bool, gradients: TaskGradients) -> Outcome:
    """From the gradients of one (micro-)batch to what to write into `.grad`, and how to write the new state."""
    memory, factor = balancer.memory, balancer.factor
    stream = RandomStream(memory.generator)
    with autocast_disabled(gradients.values):
        decision, weights = _ask_rule(balancer, inputs, gradients, stream)
        applied = multipliers(weights, factor, balancer._floors)
        own = applied if heads == "weighted" else None
        gates = None if decision is None else decision.gates
        if gates is not None and factor != 1:
            gates = tuple(tuple(gate * factor for gate in task) for task in gates)
        batches = _delivered_now(balancer, inputs, gradients)
        parts = [part for batch in batches for part in batch.weighted_sum(applied, own, gates)]
        if decision is not None and decision.direction is not None:
            parts = _along(decision.direction * factor, gradients, parts)
    zero = filled(0, len(applied), applied.device)
    in_a_row = torch.where(gradients.ok, zero, memory.in_a_row + gradients.skipped)
    step = _report(balancer, gradients, applied, None if decision is None else decision.excess_risks, in_a_row)
    write = partial(memory.write, left_out=gradients.skipped, in_a_row=in_a_row)
    if decision is not None:
        write = partial(write, decision.state, decision.weights, finish=decision.finish)
    value = torch.where(gradients.ok, gradients.values * applied, zero).sum() if scalar else None
    waiting = _waiting(balancer, inputs, gradients) if inputs.accumulate else None
    return Outcome(parts, step, write, value, stream.used, waiting)


def multipliers(weights: Tensor, factor: float, floors: Floors | None) -> Tensor:
    """[m] what the gradients of the tasks are multiplied by, from the weights that the rule has decided."""
    if floors is not None:
        weights = with_floors(weights, floors)
    if factor == 1:
        return weights
    applied = weights * factor
    # An equal share of m tasks times m is to be 1, also where rounding says otherwise (for 41 tasks, for example).
    return applied if inverts(factor) else torch.where(weights == 1 / factor, 1.0, applied)


def _ask_rule(
    balancer: "Balancer", inputs: StepInputs, gradients: TaskGradients, stream: RandomStream
) -> tuple[Decision | None, Tensor]:
    """What the rule decides, and the weights to apply to this batch."""
    rule, state, before = balancer.rule, balancer.state, balancer.weights
    # With several micro-batches most rules are asked with the last one.
    if not balancer._estimating or (inputs.accumulate and not rule.gated):
        return None, before
    pending = [] if rule.gated else balancer._pending
    batches = [*pending, gradients]
    validation = None
    if "validation_losses" in inputs.extras:
        validation = validation_products(inputs, batches, rule.lookahead(state), rule.validates_heads)
    seen = observe(batches, inputs, offsets=balancer._offsets, validation=validation, random_stream=stream)
    decision = rule.update(state, seen)
    decided = torch.where(seen.ok, decision.weights, before).detach()
    late = bool(pending) and not _held_back(inputs, gradients)
    return replace(decision, weights=decided), before if late else decided


def _held_back(inputs: StepInputs, gradients: TaskGradients) -> bool:
    """Whether gradients of micro-batches wait for the last one, to be given the weights of all of them."""
    return gradients.complete and inputs.probe.to_the_end


def _delivered_now(balancer: "Balancer", inputs: StepInputs, gradients: TaskGradients) -> list[TaskGradients]:
    """The batches whose weighted sum enters `.grad` in this call."""
    if not _held_back(inputs, gradients):
        return [gradients]
    return [] if inputs.accumulate else [*(batch for batch in balancer._pending if batch.complete), gradients]


def _waiting(balancer: "Balancer", inputs: StepInputs, gradients: TaskGradients) -> TaskGradients | None:
    """What the last micro-batch is going to need of this one; large gradients that nobody needs are dropped."""
    if balancer.rule.gated or not balancer._estimating:
        return None
    return gradients.waiting(_held_back(inputs, gradients), inputs.probe.at_representation)


def _report(
    balancer: "Balancer", gradients: TaskGradients, weights: Tensor, risks: Tensor | None, in_a_row: Tensor
) -> Step:
    values, left_out, before = gradients.values, gradients.skipped, balancer._losses_so_far
    nothing = filled(torch.nan, len(values), values.device)
    losses = values if gradients.all_labelled else torch.where(gradients.labelled, values, nothing)
    if before is not None:  # the sum; where one of them is NaN, the other
        losses = torch.where(before.isnan(), losses, torch.where(losses.isnan(), before, before + losses))
    risks = nothing if risks is None else torch.where(gradients.ok, risks, nothing)
    zero = filled(0, len(values), values.device)
    counts = torch.where(left_out, in_a_row, zero)
    return Step(balancer.tasks, torch.stack((torch.where(left_out, zero, weights), losses, risks, counts)))


def _along(direction: Tensor, gradients: TaskGradients, parts: list[Contribution]) -> list[Contribution]:
    """The combined gradient with a direction of the rule's own, at the representation or on the shared parameters."""
    if gradients.scale is not None:
        direction = direction * gradients.scale
    if gradients.overflow is not None:
        direction = torch.where(gradients.overflow, torch.nan, direction)
    if not gradients.complete:
        return [(leaf, direction.to(part.dtype) if isinstance(leaf, Representation) else part) for leaf, part in parts]
    shared = {id(parameter) for parameter in gradients.parameters}
    along = split_by_parameter(direction, gradients.parameters)
    pairs = zip(gradients.parameters, along, strict=True)
    own = [(target, gradient) for target, gradient in parts if id(target) not in shared]
    return [*own, *((leaf, part.view(leaf.shape).to(leaf.dtype)) for leaf, part in pairs)]


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
    samples = [batch.samples_of_all() for batch in batches] if local and inputs.per_sample else []
    complete = [batch for batch in samples if batch is not None]
    starts = zip(inputs.all_parameters, offsets, strict=False) if probe.to_the_end else ()
    return Observation(
        losses=losses,
        ok=ok,
        rows=tuple(row.float() for row in rows),
        matrix=matrix if probe.to_the_end else None,
        offsets=tuple(start for parameter, start in starts if parameter.requires_grad),
        samples=lambda task: [part for number, batch in enumerate(batches) for part in batch.samples(task, number)],
        samples_of_all=complete if len(complete) == len(batches) else (),
        heads=not latest.headless,
        extras=inputs.extras,
        metrics=metrics,
        cross=cross,
        validation_losses=validation_losses,
        random_stream=random_stream,
        reduction=reduction,
        local_rows=local,
    )


def commit(balancer: "Balancer", inputs: StepInputs, outcome: Outcome) -> Step:
    """Make the step count: the only place where the balancer changes."""
    outcome.write()
    if inputs.reduction is not no_reduction and balancer._estimating and not inputs.accumulate:
        # As they are now: a backward pass has freed those that `fully_shard` had put together for the forward.
        parameters = [parameter for parameter in balancer.shared_parameters if parameter.requires_grad]
        balancer._replicas.after_decision(parameters, outcome.step.numbers.device)
    memory = balancer.memory
    if outcome.generator is not None:
        memory.generator = outcome.generator
    if inputs.accumulate and not balancer.rule.gated:
        if outcome.waiting is not None:
            balancer._pending.append(outcome.waiting)
    else:
        balancer._pending.clear()
        memory.__dict__["steps"] += 1  # not by `setattr`, which looks for parameters
    if inputs.accumulate or balancer.accumulating:
        balancer._losses_so_far = outcome.step.losses if inputs.accumulate else None
    note(balancer, outcome.step)
    return outcome.step


def note(balancer: "Balancer", step: Step) -> None:
    """Called with every step that has been taken, also where the laboratory replays it."""
    balancer.__dict__["last_step"], watch = step, balancer._watch
    if step.numbers.device.type == "cpu":
        watch.target.copy_(step.numbers)
        if watch.numbers[3].any():  # a task was left out
            watch.judge()
    elif step.numbers.device.type == "cuda":
        watch.look(step)


def _key(balancer: "Balancer", inputs: StepInputs) -> tuple[Any, ...] | None:
    """Equal for steps of the same operations; None where a step depends on the host, processes or micro-batches."""
    more = bool(inputs.extras) or inputs.scale is not None or inputs.reduction is not no_reduction
    if more or balancer.rule.uses_host or inputs.accumulate or balancer.accumulating:
        return None
    applied = balancer.heads, balancer.factor, balancer._floors, balancer._estimating
    return balancer.rule, balancer._shared.training, applied, balancer.memory.addresses


def weighted_losses(balancer: "Balancer", losses: Any, mask: Any, equal: bool = False) -> Tensor:
    """The sum of the losses with the weights last decided, for evaluation; a task without labels adds nothing.

    `equal`: the plain sum. It is comparable between steps, which the weighted one is not, as weights move.
    """
    losses, mask = by_task(losses, mask, balancer.tasks)
    ordered = ordered_losses(losses, balancer.tasks, graph=False)
    masks = label_masks(mask, balancer.tasks)
    weights = multipliers(balancer.weights, balancer.factor, balancer._floors)
    terms = []
    for weight, loss, labelled in zip(torch.ones_like(weights) if equal else weights, ordered, masks, strict=True):
        if loss is not None:
            term = weight.to(loss.device) * loss.reshape(()).float()
            terms.append(term if labelled is None else torch.where(labelled.any().to(loss.device), term, 0))
    return torch.stack(terms).sum()
