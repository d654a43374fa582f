"""Inner products of validation gradients with training gradients, for rules that look one step ahead."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from excessmtl.gradients.any_graph import task_by_task
from excessmtl.gradients.task_gradients import TaskGradients
from excessmtl.graph.inputs import Losses, StepInputs
from excessmtl.graph.plan import at_shared_parameters
from excessmtl.step.inputs import validation_losses
from excessmtl.tensors import autocast_disabled, total


def validation_products(
    inputs: StepInputs, batches: Sequence[TaskGradients], multipliers: Tensor, own: bool
) -> tuple[Tensor, Tensor]:
    """[m, m] products of validation gradients (rows) and training gradients (columns), and [m] the validation losses.

    Validation losses given as a function are computed at the parameters moved by `multipliers` times the training
    gradients; losses that are there already stand for the first-order form. `own`: whether the products count the
    tasks' own parameters beside the shared ones.
    """
    validation = inputs.extras["validation_losses"]
    if not callable(validation):
        return _products(inputs, validation, batches, own)
    with autocast_disabled(batches[-1].values):
        steps = [step for batch in batches for step in _steps_ahead(batch, multipliers)]
    with _moved(steps, inputs.shared.module):
        with torch.enable_grad():
            losses = validation()
        return _products(inputs, losses, batches, own)


def _products(inputs: StepInputs, losses: Losses, batches: Sequence[TaskGradients], own: bool) -> tuple[Tensor, Tensor]:
    ordered = validation_losses(losses, inputs.tasks)
    unlabelled = replace(inputs, losses=ordered, masks=[None] * len(ordered), scale=None)
    plan = replace(at_shared_parameters(unlabelled), at_parameters=batches[-1].parameters, overlap=True)
    validation = task_by_task(plan)
    with autocast_disabled(validation.values):
        return total([_cross_products(validation, batch, own) for batch in batches]), validation.values


def _steps_ahead(batch: TaskGradients, multipliers: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """All parameters that a plain gradient step with these multipliers would move, and by how much."""
    for parameter, rows in zip(batch.parameters, batch.rows_at_parameters, strict=True):
        yield parameter, (multipliers.to(rows.dtype) @ rows).reshape(parameter.shape)
    unscale = 1.0 if batch.scale is None else 1.0 / batch.scale
    for task, own in enumerate(batch.own()):
        for leaf, gradient in own:
            yield leaf, gradient * unscale * multipliers[task]


@contextmanager
def _moved(steps: Sequence[tuple[Tensor, Tensor]], module: nn.Module | None) -> Iterator[None]:
    """Inside: parameters minus steps, and a private copy of the module's buffers. Afterwards: all as before.

    Storage is swapped, not written, so the training graph stays valid and what comes back is exact. The buffers are
    copied because an auxiliary forward must not change BatchNorm statistics.
    """
    buffers = [] if module is None else list(module.buffers())
    kept = [(tensor, tensor.data) for tensor in (*(parameter for parameter, _ in steps), *buffers)]
    try:
        for parameter, step in steps:
            parameter.data = parameter.data - step.to(parameter.dtype)
        for buffer in buffers:
            buffer.data = buffer.data.clone()
        yield
    finally:
        for tensor, data in reversed(kept):
            tensor.data = data


def _cross_products(validation: TaskGradients, training: TaskGradients, own: bool) -> Tensor:
    """[m, m]: validation gradient of task i times training gradient of task j."""
    rows = zip(validation.rows_at_parameters, training.rows_at_parameters, strict=True)
    cross = total([(mine @ other.T).float() for mine, other in rows])
    unscale = 1.0 if training.scale is None else 1.0 / training.scale
    for i, pairs in enumerate(validation.own() if own else ()):
        mine = {id(leaf): gradient for leaf, gradient in pairs}
        for j, others in enumerate(training.own()):
            products = [(mine[id(leaf)].float() * g.float()).sum() for leaf, g in others if id(leaf) in mine]
            if products:
                cross[i, j] += torch.stack(products).sum() * unscale
    return cross
