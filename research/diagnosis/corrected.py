"""Does it help to follow the diagnosis? Train again without the labels that are probably bad."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from excessmtl import lab
from excessmtl.diagnosis import Report
from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.find import load_benchmark
from research.diagnosis.cells import Cell, World, noisy_split
from research.diagnosis.study import REPORTED

_LEVEL, _SEED, _FOLDS = 0.4, 0, 3
_WORLDS = ("multimnist-8", "sarcos")


def corrected(data: Mapping[str, Path | None]) -> pd.DataFrame:
    """Scores of the noisy tasks on clean test data, a row per benchmark whose data is there."""
    worlds = [world for world in REPORTED if world.name in _WORLDS and (not world.needs or data.get(world.needs))]
    return pd.DataFrame([_row(world, data.get(world.needs)) for world in worlds])


def _row(world: World, data: Path | None) -> dict[str, Any]:
    clean = load_benchmark(world.benchmark, None if data is None else str(data), _SEED, dict(world.options))
    noisy = replace(clean, train=noisy_split(clean, "train", Cell(world, "symmetric", _LEVEL, _SEED)))
    settings: dict[str, Any] = {"epochs": world.epochs, "seed": _SEED, "device": "cpu"}
    with TemporaryDirectory() as place:
        report = lab.crossval(noisy, out=Path(place) / "folds", folds=_FOLDS, **settings)
        better = replace(noisy, train=without_suspects(noisy.train, report, clean.noisy_tasks))
        runs = {"as_they_are": noisy, "corrected": better, "clean_labels": clean}
        scores = {name: _score(own, lab.train(own, out=Path(place) / name, **settings)) for name, own in runs.items()}
    return {"world": world.name, "metric": clean.tasks[0].kind.score, **scores}


def without_suspects(split: Split, report: Report, tasks: tuple[str, ...]) -> Split:
    """Labels that are probably bad: classes become the predicted one, numbers are left out."""
    targets: dict[str, Tensor] = dict(split.targets)
    for task in tasks:
        bad = [one for one in report.suspects(task, None) if one.noise_probability > 0.5]
        rows = torch.tensor([one.sample for one in bad], dtype=torch.int64)
        label = targets[task].clone()
        label[rows] = torch.nan if label.is_floating_point() else torch.tensor([int(one.predicted) for one in bad])
        targets[task] = label
    return replace(split, targets=targets)


def _score(benchmark: Benchmark, result: lab.Result) -> float:
    scores = result.summary["scores"]
    return float(sum(scores[task] for task in benchmark.noisy_tasks) / len(benchmark.noisy_tasks))
