"""One backward pass per task: right for every graph, and what `engine="reference"` does."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from excessmtl.gradients.at_representation import Rows, RowsInTheMaking
from excessmtl.gradients.own_leaves import OwnLeaves
from excessmtl.gradients.task_gradients import AtParameters, TaskGradients
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.plan import Plan, plan
from excessmtl.graph.representation import Representation, nothing_below, stopped_at
from excessmtl.graph.search import Reach, nodes_above, nodes_of
from excessmtl.tensors import dense
from excessmtl.torch_private import hooks_disabled, repeatable

T = TypeVar("T")
Function = Callable[[TaskGradients], T]
"""From the gradients of a batch to whatever is made of them; changes nothing else."""
Key = Callable[[], Hashable]
"""Returns what is equal for steps in which a decision takes the same operations; None for those that stand alone."""


class AnyGraph:
    """One backward pass per task, for every graph. What a balancer asks for in every step."""

    def plan(self, inputs: StepInputs) -> Plan:
        """How far the backward pass of each task goes."""
        return plan(inputs)

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """The gradients of every task."""
        return task_by_task(plan)

    def evaluate(self, function: Function[T], gradients: TaskGradients, plan: Plan, key: Key) -> T:
        """`function(gradients)`."""
        return function(gradients)

    def forget(self) -> None:
        """Drop whatever depends on where the balancer's state is in memory: nothing here."""


def task_by_task(plan: Plan) -> TaskGradients:
    """One backward pass per loss, to the leaves of its own, its representations and the parameters looked at."""
    inputs, count = plan.inputs, len(plan.inputs.losses)
    last = next(task for task in reversed(range(count)) if inputs.losses[task] is not None)
    # The trunk has to be passed again, or the heads: the graph must stay.
    retain = plan.second_backward or (bool(plan.at_parameters) and not plan.complete)
    again = retain or plan.overlap or len(plan.representations) > 1
    at_z = {id(z): RowsInTheMaking(z, _tasks_at(z, plan.reaches)) for z in plan.representations}
    at_leaves: list[list[tuple[Tensor, Tensor]]] = [[] for _ in inputs.losses]
    at_parameters = AtParameters(plan.at_parameters, count) if plan.at_parameters else None
    with repeatable(nodes_of(inputs.losses) if again else ()):
        for task, (loss, reach) in enumerate(zip(inputs.losses, plan.reaches, strict=True)):
            rows: Sequence[Tensor | None] = [None] * len(plan.at_parameters)
            if loss is not None:
                keep = retain or (plan.overlap and task != last)
                targets, gradients, rows = _backward(loss, reach, plan.at_parameters, inputs.scale, keep)
                for target, gradient in zip(targets, gradients, strict=True):
                    if gradient is not None and isinstance(target, Tensor):
                        at_leaves[task].append((target, gradient))
                    elif gradient is not None:
                        at_z[id(target)].add(task, dense(gradient))
            if at_parameters is not None:
                at_parameters.take([task], rows)
    arrived = [rows_at_z.arrived() for rows_at_z in at_z.values()]
    if plan.heads_compiled:
        arrived, at_leaves = _without_zeros(arrived, at_leaves)
    return TaskGradients(
        inputs.losses,
        inputs.masks,
        inputs.scale,
        [part for part in arrived if part.tasks],
        OwnLeaves.of(at_leaves),
        None if at_parameters is None else at_parameters.matrix,
        plan.at_parameters,
        plan.complete,
        headless=not any(reach.leaves for reach in plan.reaches),
    )


def _tasks_at(representation: Representation, reaches: Sequence[Reach]) -> list[int]:
    return [task for task, reach in enumerate(reaches) if id(representation) in reach.representations]


def _without_zeros(
    at_z: Sequence[Rows], at_leaves: Sequence[list[tuple[Tensor, Tensor]]]
) -> tuple[list[Rows], list[list[tuple[Tensor, Tensor]]]]:
    """Without the zeros that compiled code hands to what a task does not reach: the heads of the other tasks.

    This reads from the device, once. A task whose gradients at the representation are all zero keeps them.
    """
    flags = [dense(gradient).any().reshape(1) for pairs in at_leaves for _, gradient in pairs]
    flags += [part.flat.any(1) for part in at_z]
    moved = iter(torch.cat([flag.to(flags[0].device) for flag in flags]).tolist() if flags else ())
    leaves = [[pair for pair in pairs if next(moved)] for pairs in at_leaves]
    reached = [{task for task in part.tasks if next(moved)} for part in at_z]
    anywhere: set[int] = set().union(*reached)
    kept = []
    for part, tasks in zip(at_z, reached, strict=True):
        places = [place for place, task in enumerate(part.tasks) if task in tasks or task not in anywhere]
        kept.append(replace(part, flat=part.flat[places], tasks=tuple(part.tasks[place] for place in places)))
    return kept, leaves


def _backward(
    loss: Tensor, reach: Reach, parameters: Sequence[Tensor], scale: Tensor | None, retain_graph: bool
) -> tuple[list[Any], Sequence[Tensor | None], Sequence[Tensor | None]]:
    """The leaves and representations below one loss, their gradients, and those at `parameters`."""
    representations, leaves = list(reach.representations.values()), list(reach.leaves.values())
    targets = [*(z.edge for z in representations), *leaves]
    if not targets and not parameters:
        return [], [], []
    several = len(representations) > 1
    grad = partial(
        torch.autograd.grad,
        loss,
        grad_outputs=None if scale is None else scale.to(loss.dtype).reshape(loss.shape),
        retain_graph=retain_graph or several,
        allow_unused=True,
    )
    tensors = [z.tensor() for z in representations]
    lost = representations if None in tensors else []
    with hooks_disabled([*tensors, *leaves, *parameters]):
        last = () if several or parameters else representations
        with stopped_at(representations if several else ()), nothing_below(last), _before_hooks(loss, lost) as arrived:
            gradients: list[Tensor | None] = list(grad([*targets, *([] if several else parameters)]))
        if several and parameters:  # they lie below the representations, where nothing has arrived
            gradients += grad(parameters)
    at_parameters = gradients[len(targets) :]
    if lost:
        gradients[: len(representations)] = [arrived.get(id(z)) for z in representations]
    return [*representations, *leaves], gradients[: len(targets)], at_parameters


@contextmanager
def _before_hooks(loss: Tensor, representations: Sequence[Representation]) -> Iterator[dict[int, Tensor]]:
    """What arrives at these representations inside, by their ids, before a hook there changes it.

    The hooks of a tensor that nobody holds cannot be disabled; they act on what is delivered.
    """
    arrived: dict[int, Tensor] = {}
    by_end = {(z.edge.node, z.edge.output_nr): z for z in representations if z.edge is not None}

    def taking(ends: Sequence[tuple[int, Representation]]) -> Callable[..., None]:
        def take(gradients: tuple[Tensor | None, ...], outputs: object) -> None:
            for place, z in ends:
                if (gradient := gradients[place]) is not None:
                    arrived[id(z)] = arrived[id(z)] + gradient if id(z) in arrived else gradient

        return take

    hooks = []
    for node, ends in nodes_above([loss], representations) if representations else ():
        mine = [(place, by_end[end]) for place, end in ends if end in by_end]
        if mine:
            hooks.append(node.register_hook(taking(mine)))
    try:
        yield arrived
    finally:
        for hook in hooks:
            hook.remove()
