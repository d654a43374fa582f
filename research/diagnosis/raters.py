"""VADER: real raters who disagree. Four domains ordered by their disagreement, and raters as tasks."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

import excessmtl
from excessmtl import lab
from excessmtl.lab.data import sources, vader
from excessmtl.lab.data.base import Split
from excessmtl.lab.data.find import load_benchmark
from excessmtl.lab.training.held_out import HeldOutData, predicted

_FOLDS = 5
"""One of so many parts is held out."""
_RATERS = 4
"""Of each film review, as tasks; a spammer and one who answers half of the texts at random come on top."""


def path_of_data() -> Path | None:
    """Where the archive is, if it has been fetched."""
    folder = sources.where("vader")
    return None if folder is None else next(folder.glob("*.tar.gz"))


def domains(path: Path, seed: int) -> pd.DataFrame:
    """A row per domain: is a text negative, neutral or positive, in the words of one rater per text.

    `truth`: how often a score has not the most common sign among those of its text; `from_mean`: not the sign of the
    mean. Of the held-out texts a second rater, never the same person as the first, is known as well.
    """
    rng = np.random.default_rng(seed)
    train, held_out, again, truth, from_mean = {}, {}, {}, {}, {}
    for task, (counts, scores) in vader.read(path, path.stat().st_mtime_ns).items():
        signs = [np.sign(own).astype(np.int64) + 1 for own in scores]
        two = torch.from_numpy(np.stack([rng.choice(own, 2, replace=False) for own in signs]))
        rows = torch.from_numpy(rng.permutation(len(signs)))
        kept, trained = rows[: len(rows) // _FOLDS], rows[len(rows) // _FOLDS :]
        train[task], held_out[task] = (counts[trained], two[trained, 0]), (counts[kept], two[kept, 0])
        again[task] = two[kept, 1]
        truth[task] = float(np.mean([1 - np.bincount(own).max() / len(own) for own in signs]))
        from_mean[task] = float(np.mean([np.mean(np.sign(own) != np.sign(own.mean())) for own in scores]))
    found = _trained(train, held_out, 3, seed)
    alone = excessmtl.diagnose(found.predictions, found.targets, found.kinds)
    twice = excessmtl.diagnose(found.predictions, found.targets, found.kinds, second_labels=again)
    known = {task: {"task": task, "truth": truth[task], "from_mean": from_mean[task]} for task in truth}
    return pd.DataFrame([{"seed": seed, **own, **_pair(alone, twice, task)} for task, own in known.items()])


def annotators(path: Path, seed: int) -> pd.DataFrame:
    """A row per rater: is a film review positive? One head each, all on the same texts.

    The archive does not say who gave a score. A task is one of the scores of each text, which is by some person.
    """
    rng = np.random.default_rng(seed)
    counts, scores = vader.read(path, path.stat().st_mtime_ns)["films"]
    real = np.stack([rng.choice(own, _RATERS + 1, replace=False) > 0 for own in scores]).astype(np.int64)
    random = rng.permuted(real, axis=0)
    labels = {f"person {number}": real[:, number - 1] for number in range(1, _RATERS + 1)}
    labels["half at random"] = np.where(rng.random(len(real)) < 0.5, random[:, 0], real[:, _RATERS])
    labels["spammer"] = random[:, 1]
    rows = torch.from_numpy(rng.permutation(len(real)))
    kept, trained = rows[: len(rows) // _FOLDS], rows[len(rows) // _FOLDS :]
    train, held_out = (
        {task: (counts[part], torch.from_numpy(own)[part]) for task, own in labels.items()} for part in (trained, kept)
    )
    found = _trained(train, held_out, 2, seed)
    report = excessmtl.diagnose(found.predictions, found.targets, found.kinds)
    fields = ("task", "verdict", "noise_rate", "skill", "samples")
    return pd.DataFrame([{"seed": seed} | {name: getattr(one, name) for name in fields} for one in report.tasks])


def _trained(train: dict[str, Any], held_out: dict[str, Any], classes: int, seed: int) -> HeldOutData:
    """Predictions of VADER's network for the held-out texts; equal weights."""
    made = load_benchmark("vader", None, seed, {})
    tasks = tuple(lab.Task(task, classes, lab.classification) for task in train)
    splits = [
        Split(*({task: own[part] for task, own in texts.items()} for part in (0, 1))) for texts in (train, held_out)
    ]
    last = (tasks[-1].name,)
    benchmark = replace(made, tasks=tasks, train=splits[0], validation=splits[1], test=splits[1], noisy_tasks=last)
    torch.manual_seed(seed)
    with TemporaryDirectory() as place:
        run = lab.train(benchmark, "uniform", out=Path(place) / "run", seed=seed, device="cpu")
    return predicted(run.network.eval(), benchmark, splits[1])


def _pair(alone: excessmtl.diagnosis.Report, twice: excessmtl.diagnosis.Report, task: str) -> dict[str, Any]:
    return {
        "samples": twice[task].samples,
        "alone": alone[task].wrong_labels,
        "alone_verdict": alone[task].verdict,
        "twice": twice[task].wrong_labels,
        "twice_verdict": twice[task].verdict,
    }
