"""Estimates against the truth, one row per task of every cell."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import excessmtl
from excessmtl.diagnosis import Report
from excessmtl.diagnosis.inputs import Array
from excessmtl.lab.data.kinds import classification, regression
from excessmtl.lab.data.tasks import Task
from research.diagnosis.cells import Cell, HeldOut, read
from research.diagnosis.noises import disturbed

RANKINGS = {
    "precision": "`report.suspects` ↑",
    "own_probability": "label's probability ↑",
    "own_margin": "label's margin ↑",
    "own_adjusted": "adjusted margin ↑",
}
"""Columns with the average precision of a ranking of wrong labels: ours, and three that cleanlab has."""
TWICE = 200
"""So many samples of a task are labelled a second time."""


def measured(cells: Iterable[Cell], folder: Path, most: int | None = None) -> pd.DataFrame:
    """All recorded cells, by at most so many test samples; None: all."""
    rows: list[dict[str, Any]] = []
    for cell in (cell for cell in cells if (folder / f"{cell.name}.npz").exists()):
        tasks = read(cell, folder)
        report = excessmtl.diagnose(
            {task.task: task.predictions[:most] for task in tasks},
            {task.task: task.targets[:most] for task in tasks},
            {task.task: task.kind for task in tasks},
        )
        rows += [_row(cell, task, report, most) for task in tasks]
    return pd.DataFrame(rows)


def _row(cell: Cell, task: HeldOut, report: Report, most: int | None) -> dict[str, Any]:
    found = report[task.task]
    low, high = found.noise_rate_interval or (0.0, 1.0)
    truth = _truth(task)
    row: dict[str, Any] = {
        "world": cell.world.name,
        "kind": cell.kind,
        "level": cell.level,
        "seed": cell.seed,
        "task": task.task,
        "type": task.kind,
        "samples": found.samples,
        "truth": truth,
        "estimate": found.noise_rate,
        "low": low,
        "high": high,
        "verdict": found.verdict,
        **dict.fromkeys(("twice", "quarter", *RANKINGS), np.nan),
    }
    if task.noisy and cell.kind == "symmetric" and most is None:
        row["twice"] = _labelled_twice(task)
    if task.kind == "classification":
        logits, labels = task.predictions[:most].astype(np.float64), task.targets[:most].astype(np.int64)
        row["quarter"] = confident_quarter(logits, labels)
        wrong = labels != task.clean[:most]
        if wrong.any():
            ranking = np.zeros(len(labels))
            every = report.suspects(task.task, None)
            ranking[[one.sample for one in every]] = np.arange(len(every), 0, -1)
            row["precision"] = average_precision(ranking, wrong)
            row |= {name: average_precision(-scores, wrong) for name, scores in cleanlab_scores(logits, labels).items()}
    return row


def _labelled_twice(task: HeldOut) -> float | None:
    """The noise rate where some of the samples have a second label, with noise of its own."""
    classes = task.kind == "classification"
    drawn = Task(task.task, task.predictions.shape[1], classification if classes else regression)
    clean = torch.from_numpy(task.clean[:TWICE])
    second = disturbed("symmetric", drawn, clean, clean, task.cell.level, task.cell.seed, 9)
    outputs, labels = task.predictions[:TWICE], task.targets[:TWICE]
    named = {task.task: second}
    report = excessmtl.diagnose({task.task: outputs}, {task.task: labels}, task.kind, second_labels=named)
    return report[task.task].noise_rate


def _truth(task: HeldOut) -> float:
    """In the convention of the estimate: classes drawn anew, or targets with an error of their own spread."""
    if task.kind == "regression":
        return task.cell.level if task.noisy else 0.0
    classes = task.predictions.shape[1]
    return min(float((task.targets != task.clean).mean() * classes / (classes - 1)), 1.0)


def confident_quarter(logits: Array, labels: NDArray[np.int64]) -> float:
    """The baseline: the error, above chance, of the most confident quarter of the samples."""
    ordered = np.sort(logits, axis=1)
    chosen = np.argsort(ordered[:, -2] - ordered[:, -1], kind="stable")[: max(1, len(labels) // 4)]
    chance: float = 1 / logits.shape[1]
    agree = float((logits.argmax(1) == labels)[chosen].mean())
    return 1 - (agree - chance) / float(1 - chance)


def cleanlab_scores(logits: Array, labels: NDArray[np.int64]) -> dict[str, Array]:
    """What cleanlab 2.9 ranks by, low for a wrong label: the label's probability, its margin, and the adjusted margin.

    The margin is the distance to the best other class. Adjusted: from the probabilities less the mean that each class
    has where it is the label (`adjust_pred_probs=True`).
    """
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    usual = np.array(
        [shares[labels == one, one].mean() if (labels == one).any() else 1 for one in range(shares.shape[1])]
    )
    adjusted = shares - usual + usual.max()
    adjusted /= adjusted.sum(1, keepdims=True)
    rows, is_label = np.arange(len(labels)), np.arange(shares.shape[1]) == labels[:, None]
    return {
        "own_probability": shares[rows, labels],
        "own_margin": shares[rows, labels] - np.where(is_label, -1, shares).max(1),
        "own_adjusted": adjusted[rows, labels] - np.where(is_label, -1, adjusted).max(1),
    }


def average_precision(scores: Array, wrong: Array) -> float:
    """Of a ranking by falling scores; equal ones count in the order they stand in, from the back."""
    order = np.argsort(scores, kind="stable")[::-1]
    hits = wrong[order].astype(np.float64)
    return float((hits.cumsum() / np.arange(1, len(hits) + 1) * hits).sum() / hits.sum())


def separation(frame: pd.DataFrame) -> float:
    """AUROC of the estimate: tasks with a noise rate of at least 0.15 against clean ones; no estimate counts as 0.5."""
    estimate = frame["estimate"].fillna(0.5)
    noisy, clean = estimate[frame["truth"] >= 0.15], estimate[frame["truth"] == 0]
    if noisy.empty or clean.empty:
        return float("nan")
    pairs = noisy.to_numpy()[:, None] - clean.to_numpy()[None]
    return float((pairs > 0).mean() + 0.5 * (pairs == 0).mean())


def covered(frame: pd.DataFrame) -> float:
    """Share of the intervals that hold the truth."""
    return float(((frame["low"] <= frame["truth"] + 1e-9) & (frame["truth"] <= frame["high"] + 1e-9)).mean())


def mean_error(frame: pd.DataFrame) -> float:
    """Of the noise rate, over the tasks that have an estimate."""
    return float((frame["estimate"] - frame["truth"]).abs().mean())


def hard_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per world of clean, hard tasks: how many, their estimates, their verdicts."""
    rows = []
    for world, own in frame.groupby("world", sort=False):
        verdicts = own["verdict"].value_counts()
        noisy, suspect, clean = (int(verdicts.get(name, 0)) for name in ("noisy", "suspect", "clean"))
        counts = {"noisy": noisy, "suspect": suspect, "other": len(own) - noisy - suspect - clean}
        estimates = {"mean_estimate": own["estimate"].mean(), "largest": own["estimate"].max()}
        rows.append({"world": world, "tasks": len(own), **estimates, **counts})
    return pd.DataFrame(rows)


def samples_summary(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """A row per number of held-out samples."""
    rows = []
    for name, frame in frames.items():
        noisy, clean = frame[frame["truth"] >= 0.15], frame[frame["truth"] == 0]
        errors = {"error": mean_error(noisy), "clean_estimate": clean["estimate"].mean(), "auroc": separation(frame)}
        rows.append(
            {"samples": name, **errors, "covered": covered(frame), "called_noisy": (noisy["verdict"] == "noisy").mean()}
        )
    return pd.DataFrame(rows)
