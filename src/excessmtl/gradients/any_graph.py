"""One backward pass per task: right for every graph, and what `engine="reference"` does."""

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from excessmtl.gradients.at_representation import LeafGradient, Rows
from excessmtl.gradients.task_gradients import TaskGradients
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.nodes import nodes_above, nodes_of
from excessmtl.graph.plan import Plan, Reach, plan
from excessmtl.graph.representation import Representation, nothing_below, stopped_at
from excessmtl.tensors import dense
from excessmtl.torch_private import COMPILER, hooks_disabled, hooks_of, repeatable

T = TypeVar("T")
Gradients = Sequence[Tensor | None]
"""None where nothing arrives."""
Key = Callable[[], Hashable]
"""Returns what is equal for steps in which a decision takes the same operations; None for those that stand alone."""


class AnyGraph:
    """One backward pass per task, for every graph. What a balancer asks for in every step."""

    recorded_on: Set[str] = frozenset()
    """Types of devices on which `replayed` is asked for decisions: see `excessmtl.recording.recorded`."""

    def plan(self, inputs: StepInputs) -> Plan:
        """How far the backward pass of each task goes."""
        return plan(inputs)

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """The gradients of every task."""
        return task_by_task(plan)

    def replayed(self, decide: Callable[[TaskGradients], T], gradients: TaskGradients, plan: Plan, key: Key) -> T:
        """`decide(gradients)`, from a recording where there is one."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop whatever depends on where the balancer's state is in memory: nothing here."""


def task_by_task(plan: Plan) -> TaskGradients:
    """One backward pass per loss, to the leaves of its own, its representations and the parameters looked at."""
    inputs, losses, parameters = plan.inputs, plan.inputs.losses, plan.at_parameters
    last = max(task for task, loss in enumerate(losses) if loss is not None)
    # The trunk has to be passed again, or the heads: the graph must stay.
    retain = plan.second_backward or (bool(parameters) and not plan.complete)
    at_z = {id(z): Rows.awaited(z, plan.tasks_at(z), inputs) for z in plan.representations}
    at_leaves: list[LeafGradient] = []
    at_parameters = AtParameters(parameters, len(losses)) if parameters else None
    with ExitStack() as around:
        if hooked := _with_hooks(plan):
            around.enter_context(hooks_disabled(hooked))
        if COMPILER in sys.modules and (retain or plan.overlap or len(plan.representations) > 1):
            around.enter_context(repeatable(nodes_of(losses)))
        for task, (loss, reach) in enumerate(zip(losses, plan.reaches, strict=True)):
            rows: Gradients = [None] * len(parameters)
            if loss is not None:
                keep = retain or (plan.overlap and task != last)
                arrived, own, rows = _backward(loss, reach, parameters, inputs.scale, keep)
                for key, gradient in zip(reach.representations, arrived, strict=True):
                    if gradient is not None:
                        at_z[key].add(task, dense(gradient))
                pairs = zip(reach.leaves.values(), own, strict=True)
                at_leaves += [(task, leaf, gradient) for leaf, gradient in pairs if gradient is not None]
            if at_parameters is not None:
                at_parameters.take([task], rows)
    dense_rows = [rows_at_z.some(rows_at_z.arrived) for rows_at_z in at_z.values()]
    if plan.heads_compiled:
        dense_rows, at_leaves = _without_zeros(dense_rows, at_leaves)
    return TaskGradients(
        losses,
        inputs.masks,
        inputs.scale,
        at_z=[part for part in dense_rows if part.tasks],
        at_leaves=at_leaves,
        at_parameters=None if at_parameters is None else at_parameters.matrix,
        parameters=parameters,
        complete=plan.complete,
        headless=not any(reach.leaves for reach in plan.reaches),
    )


def _with_hooks(plan: Plan) -> list[Tensor]:
    """What gradients are computed for here and delivered to later, where somebody waits for the latter."""
    tensors = (*plan.own_leaves, *plan.at_parameters, *(z.tensor() for z in plan.representations))
    return [tensor for tensor in tensors if tensor is not None and (hooks_of(tensor) or tensor.retains_grad)]


def _without_zeros(at_z: Sequence[Rows], at_leaves: Sequence[LeafGradient]) -> tuple[list[Rows], list[LeafGradient]]:
    """Without the zeros that compiled code hands to what a task does not reach: the heads of the other tasks.

    This reads from the device, once. A task whose gradients at the representation are all zero keeps them.
    """
    flags = [dense(gradient).any().reshape(1) for _, _, gradient in at_leaves]
    flags += [gradient.any().reshape(1) for part in at_z for gradient in part.gradients]
    moved = iter(torch.cat([flag.to(flags[0].device) for flag in flags]).tolist() if flags else ())
    leaves = [gradient for gradient in at_leaves if next(moved)]
    reached = [{task for task in part.tasks if next(moved)} for part in at_z]
    anywhere: set[int] = set().union(*reached)
    kept = [
        part.some([task for task in part.tasks if task in tasks or task not in anywhere])
        for part, tasks in zip(at_z, reached, strict=True)
    ]
    return kept, leaves


def _backward(
    loss: Tensor, reach: Reach, parameters: Sequence[Tensor], scale: Tensor | None, retain_graph: bool
) -> tuple[Gradients, Gradients, Gradients]:
    """The gradients of one loss: at its representations, at its own leaves, and at `parameters`."""
    representations, leaves = list(reach.representations.values()), list(reach.leaves.values())
    grad = partial(
        torch.autograd.grad,
        loss,
        grad_outputs=None if scale is None else scale.to(loss.dtype).reshape(loss.shape),
        retain_graph=retain_graph or len(representations) > 1,
        allow_unused=True,
    )
    if not representations:
        gradients = grad([*leaves, *parameters]) if leaves or parameters else ()
        return (), gradients[: len(leaves)], gradients[len(leaves) :]
    edges = [z.edge for z in representations]
    lost = representations if any(z.tensor() is None for z in representations) else []
    if len(representations) > 1:
        with stopped_at(representations), _before_hooks(loss, lost) as arrived:
            gradients = grad([*edges, *leaves])
        if parameters:  # they lie below the representations, where nothing has arrived
            gradients += grad(parameters)
    else:
        with nothing_below(() if parameters else representations), _before_hooks(loss, lost) as arrived:
            gradients = grad([*edges, *leaves, *parameters])
    at_z = [arrived.get(id(z)) for z in lost] if lost else gradients[: len(edges)]
    end = len(edges) + len(leaves)
    return at_z, gradients[len(edges) : end], gradients[end:]


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


class AtParameters:
    """The gradients of all tasks at shared parameters, side by side in one [m, n] matrix (fp32 or wider).

    A gradient is copied as soon as it is there, so that only those of one backward pass are alive beside the matrix.
    """

    def __init__(self, parameters: Sequence[Tensor], tasks: int) -> None:
        wide = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
        self.parameters = parameters
        self._sizes = [parameter.numel() for parameter in parameters]
        self.matrix = parameters[0].new_empty(tasks, sum(self._sizes), dtype=wide, requires_grad=False)

    def take(self, tasks: Sequence[int], gradients: Sequence[Tensor | None]) -> None:
        """Copy the gradients [k, ...] of these tasks; zero where there is none."""
        first, end = tasks[0], tasks[-1] + 1
        if end - first == len(tasks):
            self._fill(slice(first, end), gradients)
            return
        for row, task in enumerate(tasks):
            rows = [None if gradient is None else gradient[row : row + 1] for gradient in gradients]
            self._fill(slice(task, task + 1), rows)

    def _fill(self, tasks: slice, gradients: Sequence[Tensor | None]) -> None:
        rows = self.matrix[tasks]
        parts = [
            rows.new_zeros(1).expand(len(rows), size) if gradient is None else dense(gradient).reshape(len(rows), -1)
            for size, gradient in zip(self._sizes, gradients, strict=True)
        ]
        torch.cat(parts, dim=1, out=rows)
