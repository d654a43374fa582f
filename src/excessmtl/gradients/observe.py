"""All micro-batches of a step, on all processes, as the one observation a rule looks at."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from excessmtl.gradients.distributed import Pool, alone, mean_where, over_processes, processes
from excessmtl.gradients.gathered import Gathered, beside
from excessmtl.gradients.observation import Observation, Probe, Samples


def observe(
    batches: Sequence[Gathered],
    probe: Probe,
    *,
    per_sample: bool,
    layer: Sequence[Tensor],
    positions: tuple[int, ...],
    offsets: tuple[int, ...],
    metrics: Tensor | None,
    cross: Tensor | None,
    generator: Generator,
    pool: Pool,
) -> Observation:
    """What the rule asked for, and no more.

    `layer`: the parameters of the layer probe. `positions`, `offsets`: which shared parameters the shared probe has
    rows of, and where each would start with all of them side by side.
    """
    local = probe is Probe.REPRESENTATION
    rows: tuple[Tensor, ...] = ()
    matrix: Tensor | None = None
    if local and not per_sample:
        rows = tuple(row for batch in batches for row in batch.cut_rows)
    elif probe in (Probe.SHARED, Probe.LAYER) and batches[-1].reduced is None:
        matrix = total([batch.matrix for batch in batches if batch.matrix is not None]).float()
        matrix = matrix if pool is alone else over_processes(matrix) / processes()
        rows = beside(matrix, batches[-1].parameters)
    if probe is Probe.LAYER:
        wanted = {id(parameter) for parameter in layer}
        rows = tuple(row for row, p in zip(rows, batches[-1].parameters, strict=True) if id(p) in wanted)
    losses = total([torch.where(batch.ok, batch.values, 0) for batch in batches])
    ok = batches[0].ok if len(batches) == 1 else torch.stack([batch.ok for batch in batches]).any(0)
    if pool is not alone:
        count = processes()
        losses, ok = mean_where(losses, ok, pool)
        rows = tuple(row / count for row in rows) if local else rows
        cross = None if cross is None else pool(cross) / count
        metrics = None if metrics is None else mean_where(metrics, ~metrics.isnan(), pool)[0]
    return Observation(
        losses=losses,
        ok=ok,
        rows=tuple(row.float() for row in rows),
        matrix=matrix if probe is Probe.SHARED else None,
        positions=positions if probe is Probe.SHARED else (),
        offsets=offsets if probe is Probe.SHARED else (),
        samples=lambda task: [one for i, batch in enumerate(batches) for one in batch.samples(task, i)],
        together=_together(batches) if local and per_sample else (),
        reduced=batches[-1].reduced,
        metrics=metrics,
        cross=cross,
        generator=generator,
        pool=pool,
        local_rows=local,
    )


def _together(batches: Sequence[Gathered]) -> list[Samples]:
    found = [batch.samples_of_all() for batch in batches]
    complete = [one for one in found if one is not None]
    return complete if len(complete) == len(found) else []


def total(tensors: Sequence[Tensor]) -> Tensor:
    """The sum, without a copy where there is one."""
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors)).sum(0)
