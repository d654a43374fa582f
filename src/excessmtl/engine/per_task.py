"""One backward pass per task: how the reference engine computes the gradients of any graph."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from excessmtl.engine.graph import Reach, nodes_above, nodes_of
from excessmtl.engine.plan import Plan
from excessmtl.engine.private_torch import hooks_disabled, repeatable
from excessmtl.engine.representation import Representation
from excessmtl.engine.task_gradients import PerTask, TaskGradients
from excessmtl.engine.tensors import dense


def per_task_gradients(plan: Plan) -> TaskGradients:
    """One backward pass per loss, to the leaves of its own, its representations and the parameters looked at."""
    call = plan.call
    given = call.losses
    last = next(task for task in reversed(range(len(given))) if given[task] is not None)
    # The trunk has to be passed again, or the heads: the graph must stay.
    retain = plan.second_backward or (bool(plan.at_parameters) and not plan.complete)
    rows = ParameterRows(plan.at_parameters, len(given))
    device = next(loss.device for loss in given if loss is not None)
    heads = PerTask.nothing(len(given), device)
    again = retain or plan.overlap or len(plan.representations) > 1
    with repeatable(nodes_of(given) if again else ()):
        for task, (loss, reach) in enumerate(zip(given, plan.reaches, strict=True)):
            found: Sequence[Tensor | None] = [None] * len(plan.at_parameters)
            if loss is not None:
                keep = retain or (plan.overlap and task != last)
                targets, gradients, found = _backward(loss, reach, plan.at_parameters, call.scale, keep)
                for target, gradient in zip(targets, gradients, strict=True):
                    at_leaf = isinstance(target, Tensor)
                    pairs: list[Any] = (heads.at_leaves if at_leaf else heads.at_representation)[task]
                    if gradient is not None:
                        pairs.append((target, gradient))
            rows.take([task], found)
    if plan.heads_compiled:
        _drop_zeros(heads)
    headless = not plan.own_leaves
    parts = (rows.flat, plan.at_parameters, plan.complete)
    return TaskGradients(given, call.masks, call.scale, heads, *parts, headless=headless)


def _drop_zeros(heads: PerTask) -> None:
    """Take away the zeros that compiled code hands to what a task does not reach: the heads of the other tasks.

    This reads from the device, once. A task whose gradients at the representation are all zero keeps them.
    """
    lists: list[list[Any]] = [*heads.at_leaves, *heads.at_representation]
    flags = [dense(gradient).any().to(heads.device) for pairs in lists for _, gradient in pairs]
    remaining = iter(torch.stack(flags).tolist() if flags else ())
    for number, pairs in enumerate(lists):
        kept = [pair for pair in pairs if next(remaining)]
        if kept or number < len(heads.at_leaves):
            pairs[:] = kept


def _backward(
    loss: Tensor, reach: Reach, parameters: Sequence[Tensor], scale: Tensor | None, retain_graph: bool
) -> tuple[list[Any], Sequence[Tensor | None], Sequence[Tensor | None]]:
    """The leaves and representations below one loss, their gradients, and those at `parameters`."""
    representations, leaves = list(reach.representations.values()), list(reach.leaves.values())
    targets = [*(one.edge for one in representations), *leaves]
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
    tensors = [one.tensor() for one in representations]
    lost = representations if None in tensors else []
    with hooks_disabled([*tensors, *leaves, *parameters]):
        with _stopped_at(representations if several else []), _before_hooks(loss, lost) as arrived:
            found: list[Tensor | None] = list(grad([*targets, *([] if several else parameters)]))
        if several and parameters:  # they lie below the representations, where nothing has arrived
            found += grad(parameters)
    at_parameters = found[len(targets) :]
    if lost:
        found[: len(representations)] = [arrived.get(id(one)) for one in representations]
    return [*representations, *leaves], found[: len(targets)], at_parameters


@contextmanager
def _before_hooks(loss: Tensor, representations: Sequence[Representation]) -> Iterator[dict[int, Tensor]]:
    """What arrives at these representations inside, by their ids, before a hook there changes it.

    The hooks of a tensor that nobody holds cannot be disabled; they act on what is delivered.
    """
    arrived: dict[int, Tensor] = {}
    by_end = {(one.edge.node, one.edge.output_nr): one for one in representations if one.edge is not None}

    def taking(ends: Sequence[tuple[int, Representation]]) -> Callable[..., None]:
        def take(gradients: tuple[Tensor | None, ...], outputs: object) -> None:
            for place, one in ends:
                if (gradient := gradients[place]) is not None:
                    arrived[id(one)] = arrived[id(one)] + gradient if id(one) in arrived else gradient

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


@contextmanager
def _stopped_at(representations: Sequence[Representation]) -> Iterator[None]:
    """Gradients that arrive at a representation go no further.

    One tensor of the representation may lie below another (a pyramid, a recurrent trunk). What it gets through the
    upper one is delivered later with the upper one's share; without this it would be counted twice.
    """
    hooks = [one.edge.node.register_prehook(_zeros) for one in representations if one.edge is not None]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _zeros(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    return tuple(None if gradient is None else torch.zeros_like(gradient) for gradient in gradients)


class ParameterRows:
    """The gradients of all tasks at all parameters, side by side in one [m, n] matrix (fp32 or wider).

    A gradient is copied as soon as it is there, so that only those of one backward pass are alive beside the matrix.
    """

    def __init__(self, parameters: Sequence[Tensor], tasks: int) -> None:
        self.flat: Tensor | None = None
        self._sizes = [parameter.numel() for parameter in parameters]
        if parameters:
            wide = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
            self.flat = parameters[0].new_empty(tasks, sum(self._sizes), dtype=wide, requires_grad=False)

    def take(self, tasks: Sequence[int], gradients: Sequence[Tensor | None]) -> None:
        """Copy the gradients [k, ...] of these tasks; zero where there is none."""
        first, end = tasks[0], tasks[-1] + 1
        if end - first == len(tasks):
            self._fill(slice(first, end), gradients)
            return
        for row, task in enumerate(tasks):
            one = [None if gradient is None else gradient[row : row + 1] for gradient in gradients]
            self._fill(slice(task, task + 1), one)

    def _fill(self, tasks: slice, gradients: Sequence[Tensor | None]) -> None:
        if self.flat is None:
            return
        rows = self.flat[tasks]
        parts = [
            rows.new_zeros(1).expand(len(rows), size) if gradient is None else dense(gradient).reshape(len(rows), -1)
            for size, gradient in zip(self._sizes, gradients, strict=True)
        ]
        torch.cat(parts, dim=1, out=rows)
