"""School: exam scores of pupils, a small regression task for each of 139 schools (not in the paper)."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark, standardise
from excessmtl.lab.data.kinds import regression_over
from excessmtl.lab.data.networks import MLP
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.schema import explained

_COLUMNS = 30
_HIDDEN = 64
_SMALLEST_SCHOOL = 4
_NOISY_SHARE = 0.2
# Squared errors of all schools on one scale, in units of the variance of all training pupils' scores, which is 1 here:
# with a variance for each school, small ones with pupils alike would dominate every mean.
_exam = regression_over(1.0)


@benchmark("school", "exam scores of pupils of 139 schools, a regression task per school with its own inputs")
def load(data: Path | None, *, split_seed: int = 0) -> Benchmark:
    """One task per school.

    Args:
        data: `school.csv` without a header, or its folder: 28 features, the score, the number of the school.
        split_seed: decides which pupils of each school are for training (75 %), validation (10 %) and test
            (15 %), and which fifth of the schools is noisy.

    All schools share one scale of inputs and of scores, that of all training pupils: schools differ in level,
    and a head has to learn its school's.
    """
    path = sources.find("school", data, "school.csv")
    table = _read(path)
    rng = np.random.default_rng((split_seed, *b"school"))
    numbers, counts = np.unique(table[:, -1], return_counts=True)
    if len(numbers) < 2 or counts.min() < _SMALLEST_SCHOOL:
        raise ValueError(
            f"{path} has {len(numbers)} schools, the smallest with {counts.min()} pupils; expected at least "
            f"2 schools of at least {_SMALLEST_SCHOOL}."
        )
    names = [f"school_{position:03d}" for position in range(1, len(numbers) + 1)]
    rows = [_split(table[table[:, -1] == number], rng) for number in numbers]
    parts = [torch.cat([school[part] for school in rows]) for part in range(3)]
    inputs = standardise(*(part[:, : _COLUMNS - 2] for part in parts))
    scores = standardise(*(part[:, _COLUMNS - 2 : _COLUMNS - 1] for part in parts))
    splits = []
    for part in range(3):
        lengths = [len(school[part]) for school in rows]
        own_inputs, own_scores = torch.split(inputs[part], lengths), torch.split(scores[part], lengths)
        splits.append(Split(dict(zip(names, own_inputs, strict=True)), dict(zip(names, own_scores, strict=True))))
    noisy = rng.choice(len(names), max(1, round(_NOISY_SHARE * len(names))), replace=False)
    return Benchmark(
        "school",
        f"school.csv, {len(table):,} pupils of {len(names)} schools",
        tuple(Task(name, 1, _exam) for name in names),
        *splits,
        recipe=Recipe(learning_rate=1e-3, weight_decay=1e-2, batch_size=32, epochs=20),
        noisy_tasks=tuple(names[school] for school in sorted(noisy)),
        build_trunk=lambda: MLP(_COLUMNS - 2, hidden=_HIDDEN, layers=2),
        build_head=lambda task: nn.Linear(_HIDDEN, task.outputs),
    )


def _read(path: Path) -> npt.NDArray[np.float64]:
    with explained(f"{path} is not a table of numbers separated by commas", "fetch it again", ValueError):
        table = np.loadtxt(path, delimiter=",", ndmin=2)
    if table.shape[1] != _COLUMNS or not np.isfinite(table).all():
        raise ValueError(
            f"{path} has {table.shape[1]} columns; expected {_COLUMNS} columns of finite numbers: 28 "
            "features, the score, the school."
        )
    return table


def _split(pupils: npt.NDArray[np.float64], rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    shuffled = torch.from_numpy(rng.permutation(pupils))
    validation = max(1, round(0.10 * len(pupils)))
    test = max(1, round(0.15 * len(pupils)))
    return shuffled[validation + test :], shuffled[:validation], shuffled[validation : validation + test]
