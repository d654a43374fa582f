"""The cells of the study: data, predictor, noise and seed; their predictions, kept in files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from excessmtl.files import atomic_write
from research.diagnosis.predictors import PREDICTORS, cross_fitted
from research.diagnosis.tasks import SOURCES, Array, Random, Task, load

NUMBERS, CLASSES = ("exchanged", "added", "outliers"), ("symmetric", "pair", "one class")
LEVELS = {"choose": (0.1, 0.2, 0.3, 0.4, 0.48, 0.6, 0.8), "report": (0.25, 0.45, 0.7)}
SEEDS = {"choose": (0, 1, 2), "report": (5, 6)}  # of rows, folds and bad labels; studies before this reported others


@dataclass(frozen=True)
class Cell:
    """One predictor on one table."""

    data: str
    predictor: str
    noise: str
    level: float
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.data}-{self.predictor}-{self.noise}-{self.level:g}-{self.seed}".replace(" ", "_")


@dataclass(frozen=True)
class HeldOut:
    """One task of a cell."""

    predictions: Array
    labels: Array
    clean: Array
    rate: float
    """The true noise rate."""


def cells(half: str) -> Iterator[Cell]:
    """All of a part: its seeds of clean labels, and the first of them of each noise and level."""
    seeds = SEEDS[half]
    for data, kind in ((name, kind) for name, (own, _, kind, _) in SOURCES.items() if own == half):
        noises = [("none", 0.0, seed) for seed in seeds]
        noises += [
            (noise, level, seeds[0])
            for noise in (NUMBERS if kind == "regression" else CLASSES)
            for level in LEVELS[half]
            # Beyond one half the wrong class is the more likely one where all wrong labels are of the same class.
            if level < 0.5 or noise in (*NUMBERS, "symmetric")
        ]
        yield from (Cell(data, name, *noise) for noise in noises for name in PREDICTORS)


def disturbed(noise: str, y: Array, level: float, classes: int, rng: Random) -> tuple[Array, float]:
    """Labels of which a share is bad, and the noise rate in the words of `excessmtl.diagnose`."""
    known = np.flatnonzero(np.isfinite(y))
    hit = known[rng.random(len(known)) < level]
    labels = y.copy()
    if noise == "exchanged":
        labels[hit] = y[rng.permutation(hit)]
    elif noise == "added":
        labels[hit] += y[known].std() * rng.normal(size=len(hit))
    elif noise == "outliers":
        labels[hit] += y[known].std() * rng.choice([-1, 1], len(hit)) * rng.uniform(3, 6, len(hit))
    elif noise == "symmetric":
        labels[hit] = rng.integers(classes, size=len(hit))
    else:
        if noise == "one class":  # the commonest class loses labels to the next one
            hit = hit[y[hit] == np.bincount(y[known].astype(np.int64)).argmax()]
        labels[hit] = (y[hit] + 1) % classes
    if noise in NUMBERS:
        return labels, len(hit) / len(known)
    wrong = float((labels[known] != y[known]).mean())
    return labels, min(wrong * classes / (classes - 1), 1.0)


def of_cell(cell: Cell, data: Path, cache: Path) -> tuple[Task, list[HeldOut]]:
    """Its tasks, from the file, which is made where it is missing."""
    task = load(cell.data, cell.seed, data)
    path = cache / f"{cell.name}.npz"
    if not path.exists():
        with atomic_write(path) as file:
            np.savez_compressed(file, **_predicted(cell, task))  # type: ignore[arg-type]
    with np.load(path) as kept:
        return task, [
            HeldOut(kept[f"predictions{number}"], kept[f"labels{number}"], clean, float(kept["rates"][number]))
            for number, clean in enumerate(task.y.T)
        ]


def _predicted(cell: Cell, task: Task) -> dict[str, Array]:
    rng = np.random.default_rng([cell.seed, int(100 * cell.level), len(cell.noise)])
    kept: dict[str, Array] = {"rates": np.zeros(task.y.shape[1])}
    for number, y in enumerate(task.y.T):
        classes = 0 if task.kind == "regression" else int(np.nanmax(y)) + 1
        labels, rate = disturbed(cell.noise, y, cell.level, classes, rng) if cell.level else (y, 0.0)
        kept[f"predictions{number}"] = cross_fitted(cell.predictor, task.kind, task.x, labels, cell.seed)
        kept[f"labels{number}"], kept["rates"][number] = labels, rate
    return kept
