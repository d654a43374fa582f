"""What a task costs the others: gradients that point against each other, and the same run without the task."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.noise import apply as with_noise
from excessmtl.lab.data.tasks import labelled
from excessmtl.lab.runs.folder import RunFolder
from excessmtl.lab.training.batches import make_batches, noise_of, prepared
from excessmtl.lab.training.held_out import check_trusted, trained
from excessmtl.lab.training.loop import Run
from excessmtl.lab.training.model import SingleTaskModels
from excessmtl.pareto import gradient_cosines

MOST_TASKS = 12
"""Every task takes a copy of the shared parameters."""
_SAMPLES = 512
"""Of the training data, with its bad labels."""


@dataclass(frozen=True)
class Conflict:
    """How the gradients of the tasks lie to each other at the shared parameters."""

    tasks: tuple[str, ...]
    cosines: tuple[tuple[float | None, ...], ...]
    """Row by row; None: a task without a gradient."""


def conflict_of(run: Path, benchmark: Benchmark | None = None) -> Conflict | None:
    """The cosines between the task gradients after a run's last finished epoch, on a batch of its training data.

    None where the tasks share nothing, and where there are too many of them to look at.
    """
    network, made, config = trained(run, benchmark)
    if isinstance(network, SingleTaskModels) or len(made.tasks) > MOST_TASKS:
        return None
    noisy = with_noise(made.train, made.tasks, noise_of(config))
    batch = next(iter(make_batches(noisy, _SAMPLES, torch.device("cpu")).shuffled(config.seed, 0, 1)))
    outputs = network(prepared(batch, made))
    losses: dict[str, Tensor] = {}
    for task in made.tasks:
        target, output = batch.targets.get(task.name), outputs.get(task.name)
        if target is None or output is None:
            continue
        if (present := labelled(target)) is not None:
            output, target = output[present], target[present]
        if len(target):
            losses[task.name] = task.kind.loss(output, target)
    rows = gradient_cosines(losses, network.shared).tolist()
    return Conflict(tuple(losses), tuple(tuple(value if value == value else None for value in row) for row in rows))


def without(
    run: Path, task: str, benchmark: Benchmark | None = None, trust: bool = False
) -> dict[str, tuple[float, float]]:
    """Train a finished run again without one task: other task -> its score with the task, and without it.

    The same settings and seed; nothing is kept. One pair of runs: differences of the size that another seed makes mean
    nothing. `trust`: whether import paths in the folder may be followed, that of the method included.
    """
    summary = RunFolder(run).summary
    if not summary:
        raise ValueError(f"the run in {run} is not finished; go on with it first")
    _, made, config = trained(run, benchmark, trust)
    check_trusted(run, "method", config.method, trust)
    names = [own.name for own in made.tasks]
    if task not in names or len(names) < 2:
        raise ValueError(f"task {task!r} cannot be left out; the tasks are {names}")
    kept = [name for name in names if name != task]
    smaller = replace(
        made,
        tasks=tuple(own for own in made.tasks if own.name != task),
        noisy_tasks=tuple(name for name in made.noisy_tasks if name != task) or (kept[0],),
        train=_of_tasks(made.train, kept),
        validation=_of_tasks(made.validation, kept),
        test=_of_tasks(made.test, kept),
    )
    noisy = tuple(name for name in config.noisy_tasks if name != task)
    noise = config.noise if noisy else 0.0
    again = replace(config, noisy_tasks=noisy, noise=noise, data=None, benchmark_options={})
    with TemporaryDirectory() as place:
        without_it = Run(again, Path(place) / "run", benchmark=smaller).execute()
    return {name: (_score(summary, name), _score(without_it, name)) for name in kept}


def _score(summary: Mapping[str, Any], task: str) -> float:
    """NaN where training has diverged."""
    score = summary["scores"].get(task)
    return math.nan if score is None else float(score)


def _of_tasks(split: Split, kept: list[str]) -> Split:
    inputs = {name: split.inputs[name] for name in kept} if isinstance(split.inputs, Mapping) else split.inputs
    return Split(inputs, {name: split.targets[name] for name in kept})
