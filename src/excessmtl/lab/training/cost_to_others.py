"""What a task costs the others: gradients that point against each other."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.data.noise import apply as with_noise
from excessmtl.lab.data.tasks import labelled
from excessmtl.lab.training.batches import Batches, noise_of, prepared
from excessmtl.lab.training.held_out import trained
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
    batch = next(Batches(noisy, _SAMPLES, torch.device("cpu")).shuffled(config.seed, 0, 1))
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
