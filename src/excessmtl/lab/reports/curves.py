"""What the page's scripts draw, as plain numbers: measures against noise by method, and the training of every run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from excessmtl.lab.compare.collect import read_epochs, read_steps, thinned
from excessmtl.lab.compare.measures import CLEAN_WEIGHT, MEAN_RANK, SECONDS, Measure, Row, measures_of
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.runs.folder import file_in
from excessmtl.lab.runs.summary import QUANTITIES

MOST_POINTS, FEWEST_POINTS = 240, 24
"""Per curve. A page with few runs has the most, one with many tasks in many runs never less than the fewest."""
PAGE_BUDGET = 1_500_000
"""Numbers in a page, about 2.5 MB of it; shared equally by the runs."""

Curve = list[float | None]


def figures_of(setting: Setting, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the page's script draws: title, axis and the points of every method with their spread over seeds."""
    return [
        {
            "title": measure.title,
            "caption": f"{measure.title}{measure.suffix}",
            "share": measure == CLEAN_WEIGHT,
            "digits": measure.digits,
            "levels": setting.noise_levels,
            "curves": curves,
        }
        for measure in measures_of(setting)
        if measure not in (MEAN_RANK, SECONDS) and (curves := _curves(measure, setting.labels, rows))
    ]


def _curves(measure: Measure, labels: Sequence[str], rows: Sequence[Row]) -> list[dict[str, Any]]:
    curves = []
    for label in labels:
        spreads = {row.noise: row.cells[measure.key].spread for row in rows if row.label == label}
        known = {noise: spread for noise, spread in spreads.items() if spread is not None and spread.count}
        if known:
            curves.append(
                {
                    "label": label,
                    "noise": list(known),
                    "mean": [float(f"{own.mean:.6g}") for own in known.values()],
                    "deviation": [float(f"{own.deviation:.3g}") if own.count > 1 else 0 for own in known.values()],
                    "seeds": [own.count for own in known.values()],
                }
            )
    return curves


def explorable(folder: Path, settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """Runs with a readable steps.npz, for the page's script; `setting` in each is an index into `settings`."""
    places = [
        (index, run, path)
        for index, setting in enumerate(settings)
        for run in setting.runs.to_dict("records")
        if (path := file_in(folder, run["folder"], "steps.npz")) is not None
    ]
    share = PAGE_BUDGET // max(len(places), 1)
    runs = []
    for index, run, path in places:
        setting = settings[index]
        allowed = int(np.clip(share // (len(QUANTITIES) * len(setting.tasks)), FEWEST_POINTS, MOST_POINTS))
        epochs, scores = _test_scores(file_in(folder, run["folder"], "metrics.csv"), setting, allowed)
        identity = {"setting": index, **{key: run[key] for key in ("label", "noise", "seed", "folder")}}
        runs.append({**identity, **_training(path, setting.tasks, allowed), "epochs": epochs, "scores": scores})
    return runs


def _training(path: Path, tasks: list[str], points: int) -> dict[str, Any]:
    steps = read_steps(path)
    unknown = next((task for task in tasks if task not in steps.losses), None)
    if unknown is not None:
        raise ValueError(f"{path} has no task {unknown!r}, which the run's summary names; make the run again")
    curves: dict[str, list[Curve] | None] = {}
    for name in QUANTITIES:
        means = thinned(getattr(steps, name)[tasks].replace([np.inf, -np.inf], np.nan), points).to_numpy()
        # A method that estimates no excess risk logs NaN throughout.
        curves[name] = [_plain(curve) for curve in means.T] if np.isfinite(means).any() else None
    return {"steps": len(steps.losses), "points": min(points, len(steps.losses)), "curves": curves}


def _test_scores(path: Path | None, setting: Setting, points: int) -> tuple[list[int], list[Curve]]:
    """Epochs (from 1) and per task the primary metric on the test split; every k-th epoch and the last."""
    if path is None:
        return [], []
    table = read_epochs(path)
    stride = max(1, -(-len(table) // points))
    kept = sorted({*range(0, len(table), stride), len(table) - 1}) if len(table) else []
    scores = []
    for task, metric in setting.metrics.items():
        column = f"test/{task}/{metric.name}"
        values = table[column].to_numpy(float)[kept] if column in table else np.full(len(kept), np.nan)
        scores.append(_plain(values * (100 if metric.is_share else 1)))
    return [index + 1 for index in kept], scores


def _plain(values: np.ndarray) -> Curve:
    """Four significant digits, None where there is no number: JSON has no NaN."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values.tolist()]
