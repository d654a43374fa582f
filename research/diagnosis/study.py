"""The cells of the study: data, predictor, noise and seed; their predictions, kept in files."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from excessmtl.files import atomic_write
from research.diagnosis.noises import CLASSES, LEVELS, NUMBERS, disturbed
from research.diagnosis.predictors import PREDICTORS, cross_fitted
from research.diagnosis.tasks import HALVES, Array, Task, load

_BELOW_HALF = 0.5
"""Beyond this level the wrong class is the more likely one where all wrong labels are of the same class."""
_DRAWN_TWICE = 0.45
_FRESH = 3
"""From this seed on, no study before this one looked: other rows, folds and bad labels."""
loaded = lru_cache(maxsize=4)(load)


@dataclass(frozen=True)
class Cell:
    """One predictor on one table."""

    half: str
    data: str
    predictor: str
    noise: str
    level: float
    seed: int

    @property
    def fresh(self) -> bool:
        """Whether no study before this one looked at it."""
        return self.seed >= _FRESH

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


def cells(half: str, folder: Path) -> Iterator[Cell]:
    """All of a part: its seeds of clean labels and of each noise and level; fresh ones of the part to report on."""
    fresh = half == "report"
    for data in (name for name, own in HALVES.items() if own == half):
        numbers = loaded(data, 0, folder).kind == "regression"
        noises = [("none", 0.0, seed) for seed in range(5 if fresh else 3)]
        noises += [
            (kind, level, seed)
            for kind in (NUMBERS if numbers else CLASSES)
            for level in LEVELS[half]
            for seed in (0, *[1] * (level == _DRAWN_TWICE), *[_FRESH] * fresh)
            if level < _BELOW_HALF or kind in (*NUMBERS, "symmetric")
        ]
        yield from (Cell(half, data, name, *noise) for noise in noises for name in PREDICTORS)


def of_cell(cell: Cell, data: Path, cache: Path) -> tuple[Task, list[HeldOut]]:
    """Its tasks, from the file, which is made where it is missing."""
    task = loaded(cell.data, cell.seed, data)
    path = cache / f"{cell.name}.npz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            np.savez_compressed(file, **_predicted(cell, task))  # type: ignore[arg-type]
    with np.load(path) as kept:
        parts = [[kept[f"{part}{number}"] for part in ("predictions", "labels")] for number in range(task.y.shape[1])]
        return task, [
            HeldOut(predictions, labels, clean, float(rate))
            for (predictions, labels), clean, rate in zip(parts, task.y.T, kept["rates"], strict=True)
        ]


def _predicted(cell: Cell, task: Task) -> dict[str, Array]:
    rng = np.random.default_rng([cell.seed, int(100 * cell.level), len(cell.noise)])
    kept: dict[str, Array] = {}
    rates = []
    for number, y in enumerate(task.y.T):
        classes = 0 if task.kind == "regression" else int(np.nanmax(y)) + 1
        labels, rate = disturbed(cell.noise, y, cell.level, classes, rng) if cell.level else (y, 0.0)
        kept[f"predictions{number}"] = cross_fitted(cell.predictor, task.kind, task.x, labels, cell.seed)
        kept[f"labels{number}"] = labels
        rates.append(rate)
    return kept | {"rates": np.array(rates)}
