"""One step of a balancer: `backward` and the scalar form share it.

Everything before `commit` changes nothing, so a step that fails leaves no trace.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from excessmtl.distributed.processes import no_reduction
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.plan import Plan
from excessmtl.graph.problems import SECOND_BACKWARD
from excessmtl.graph.representation import given
from excessmtl.methods.base import Heads
from excessmtl.step import arguments
from excessmtl.step.decide import Decide
from excessmtl.step.multipliers import multipliers
from excessmtl.step.result import Outcome, Step

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


def checked_inputs(
    balancer: "Balancer",
    losses: Any,
    at: Any,
    *,
    mask: Any,
    scaler: Any,
    accumulate: bool,
    extras: Mapping[str, Any],
) -> StepInputs:
    """The arguments of a step, checked and in task order, with what the rule asks for."""
    rule, tasks = balancer.rule, balancer.tasks
    losses, mask = arguments.by_task(losses, mask, tasks)
    ordered = arguments.ordered_losses(losses, tasks)
    device = next(loss.device for loss in ordered if loss is not None)
    if balancer.weights.device != device:
        balancer.to(device)
    scaling = scaler is not None and scaler.is_enabled()
    z = None if at is None else arguments.representation(at, tasks)
    parameters = balancer._shared.parameters
    distributed = dist.is_available() and dist.is_initialized()
    return StepInputs(
        tasks=tasks,
        losses=ordered,
        masks=arguments.label_masks(mask, tasks),
        at=z,
        find_representation=balancer._shared.find_representation if z is None else given(z),
        scale=scaler.scale(torch.ones((), device=device)) if scaling else None,
        accumulate=accumulate,
        extras=arguments.checked_extras(rule, extras, accumulate, tasks, device) if extras else {},
        probe=rule.probe if balancer._estimating else Probe.LOSSES,
        per_sample=rule.per_sample,
        shared=balancer._shared,
        all_parameters=parameters,
        shared_ids=frozenset(map(id, parameters)),
        parameters=[parameter for parameter in parameters if parameter.requires_grad],
        reduction=balancer._reduction if distributed else no_reduction,
        distributed=distributed,
    )


def run(balancer: "Balancer", inputs: StepInputs, heads: Heads, scalar: bool) -> tuple[Plan, Outcome]:
    """The step up to its outcome: what the graph allows, the gradients of every task, the decision.

    Nothing has changed when it returns, and the gradients of the tasks, which may be large, are gone.
    """
    engine, rule, checks = balancer.engine, balancer.rule, balancer._checks
    unchecked = len(checks.checked) < len(balancer.tasks) or inputs.distributed or inputs.probe.at_parameters
    if unchecked:
        checks.before(inputs, rule.name)
    plan = engine.plan(inputs)
    if unchecked or not plan.separate_heads:
        checks.after(plan, rule.whole_model)
    decide = Decide(
        inputs=inputs,
        rule=rule,
        memory=balancer.memory,
        offsets=balancer._offsets,
        pending=balancer._pending,
        losses_so_far=balancer._losses_so_far,
        estimating=balancer._estimating,
        heads=heads,
        factor=balancer.factor,
        floors=balancer._floors,
        scalar=scalar,
    )
    key = _not_recorded if scalar else partial(_key, balancer, inputs)
    return plan, engine.evaluate(decide, engine.task_gradients(plan), plan, key)


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
    return balancer._note(outcome.step)


def _key(balancer: "Balancer", inputs: StepInputs) -> tuple[Any, ...] | None:
    """Equal for steps of the same operations; None where a step depends on the host, processes or micro-batches."""
    more = bool(inputs.extras) or inputs.scale is not None or inputs.reduction is not no_reduction
    if more or balancer.rule.uses_host or inputs.accumulate or balancer.accumulating:
        return None
    return step_key(balancer)


def step_key(balancer: "Balancer") -> tuple[Any, ...]:
    """What decides, apart from the losses, which operations the next step consists of: equal for equal steps."""
    applied = balancer.heads, balancer.factor, balancer._floors, balancer._estimating
    return balancer.rule, balancer._shared.training, applied, balancer.memory.addresses


def _not_recorded() -> None:
    """The key of steps that are not recorded."""


def weighted_losses(balancer: "Balancer", losses: Any, mask: Any, equal: bool = False) -> Tensor:
    """The sum of the losses with the weights last decided, for evaluation; a task without labels adds nothing.

    `equal`: the plain sum. It is comparable between steps, which the weighted one is not, as weights move.
    """
    losses, mask = arguments.by_task(losses, mask, balancer.tasks)
    ordered = arguments.ordered_losses(losses, balancer.tasks, graph=False)
    masks = arguments.label_masks(mask, balancer.tasks)
    weights = multipliers(balancer.weights, balancer.factor, balancer._floors)
    terms = []
    for weight, loss, labelled in zip(torch.ones_like(weights) if equal else weights, ordered, masks, strict=True):
        if loss is not None:
            term = weight.to(loss.device) * loss.reshape(()).float()
            terms.append(term if labelled is None else torch.where(labelled.any().to(loss.device), term, 0))
    return torch.stack(terms).sum()
