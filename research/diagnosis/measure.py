"""Verdicts and rates of `excessmtl.diagnose` against the truth, and cleanlab's ranking on the same predictions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cleanlab.rank import get_label_quality_scores as quality_of_classes
from cleanlab.regression.rank import get_label_quality_scores as quality_of_numbers
from sklearn.metrics import average_precision_score

import excessmtl
from excessmtl.diagnosis import Report
from research.diagnosis.study import Cell, HeldOut, of_cell
from research.diagnosis.tasks import Task

SIZES: tuple[int | None, ...] = (None, 300, 75)  # held-out labels of a task at most; None: all
NOISE = 0.18  # a rate of at least so much counts as noise of 0.2: which labels are bad is drawn
LEARNED = 0.1  # the least skill of a task that has been learned at all
KEYS = ["samples", "kind", "group", "predictor", "noise"]


def summary(cells: Iterator[Cell], data: Path, cache: Path) -> pd.DataFrame:
    """Counts and sums over the tasks of every group, predictor, kind of noise and number of samples."""
    frame = pd.DataFrame([row for cell in cells for row in _rows(cell, data, cache)])
    return frame.assign(tasks=1).groupby(KEYS, sort=False).sum().reset_index()


def _rows(cell: Cell, data: Path, cache: Path) -> Iterator[dict[str, Any]]:
    task, every = of_cell(cell, data, cache)
    for most in SIZES:
        chosen = {str(number): _subset(held, most, cell.seed) for number, held in enumerate(every)}
        predictions = {name: held.predictions for name, held in chosen.items()}
        report = excessmtl.diagnose(predictions, {name: held.labels for name, held in chosen.items()}, task.kind)
        kind = "numbers" if task.kind == "regression" else "classes"
        keys = dict(zip(KEYS, (str(most or "all"), kind, task.group, cell.predictor, cell.noise), strict=True))
        for name, held in chosen.items():
            yield keys | _of_task(report, name, held) | ({} if most else _ranking(report, name, held, task))


def _subset(held: HeldOut, most: int | None, seed: int) -> HeldOut:
    rows = np.flatnonzero(np.isfinite(held.labels))
    if most is not None:
        rows = np.random.default_rng(seed).permutation(rows)[:most]
    return HeldOut(held.predictions[rows], held.labels[rows], held.clean[rows], held.rate)


def _of_task(report: Report, name: str, held: HeldOut) -> dict[str, float]:
    found = report[name]
    low, high = found.noise_rate_interval or (0.0, 1.0)
    noisy, given = held.rate >= NOISE, found.noise_rate is not None
    learned = found.skill is not None and found.skill >= LEARNED
    return {
        "noisy_tasks": noisy,
        "called_noisy": found.verdict == "noisy",
        "noisy_called_clean": noisy and found.verdict == "clean",
        "learned": noisy and learned,
        "given": noisy and learned and given,
        "with_rate": given,
        "error": abs((found.noise_rate or 0.0) - held.rate) if given else 0.0,
        "covered": low <= held.rate + 1e-9 <= high + 2e-9,
        "vacuous": high - low > 1 - 1e-9,
    }


def _ranking(report: Report, name: str, held: HeldOut, task: Task) -> dict[str, float]:
    """Average precision of the bad labels, by our ranking and by cleanlab's."""
    bad = held.labels != held.clean
    if not bad.any():
        return {"ranked": 0, "precision": 0.0, "cleanlab": 0.0}
    ours = np.zeros(len(bad))
    suspects = report.suspects(name, None)
    ours[[label.sample for label in suspects]] = np.arange(len(suspects), 0, -1)
    quality_of, kind = (quality_of_numbers, float) if task.kind == "regression" else (quality_of_classes, int)
    quality = quality_of(held.labels.astype(kind), held.predictions)
    return {
        "ranked": 1,
        "precision": float(average_precision_score(bad, ours)),
        "cleanlab": float(average_precision_score(bad, -quality)),
    }
