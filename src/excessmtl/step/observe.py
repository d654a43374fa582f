"""From the gradients of a step to what its rule is shown."""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from excessmtl.distributed.processes import mean_where, no_reduction, over_processes, processes
from excessmtl.gradients.samples import Samples
from excessmtl.gradients.task_gradients import TaskGradients
from excessmtl.graph.inputs import StepInputs
from excessmtl.methods.observation import Observation
from excessmtl.tensors import filled, split_by_parameter, total


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
    shared = probe.to_the_end
    return Observation(
        losses=losses,
        ok=ok,
        rows=tuple(row.float() for row in rows),
        matrix=matrix if shared else None,
        positions=tuple(inputs.trainable) if shared else (),
        offsets=tuple(offsets[position] for position in inputs.trainable) if shared else (),
        samples=lambda task: [one for number, batch in enumerate(batches) for one in batch.samples(task, number)],
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
    found = [batch.samples_of_all() for batch in batches]
    complete = [one for one in found if one is not None]
    return complete if len(complete) == len(found) else []
