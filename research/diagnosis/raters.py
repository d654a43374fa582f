"""VADER: real raters who disagree, in four domains."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import excessmtl
from excessmtl import lab
from excessmtl.lab.data import sources, vader
from excessmtl.lab.data.base import Split
from excessmtl.lab.data.find import load_benchmark
from excessmtl.lab.training.held_out import predicted

_FOLDS = 5
"""One of so many parts is held out."""


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
    texts: dict[str, dict[str, Tensor]] = {"train": {}, "held_out": {}}
    labels: dict[str, dict[str, Tensor]] = {"train": {}, "held_out": {}, "again": {}}
    known: dict[str, dict[str, Any]] = {}
    for task, (counts, scores) in vader.read(path, path.stat().st_mtime_ns).items():
        signs = [np.sign(own).astype(np.int64) + 1 for own in scores]
        two = torch.from_numpy(np.stack([rng.choice(own, 2, replace=False) for own in signs]))
        rows = torch.from_numpy(rng.permutation(len(signs)))
        kept = rows[: len(rows) // _FOLDS]
        for name, part in (("held_out", kept), ("train", rows[len(kept) :])):
            texts[name][task], labels[name][task] = counts[part], two[part, 0]
        labels["again"][task] = two[kept, 1]
        truth = np.mean([1 - np.bincount(own).max() / len(own) for own in signs])
        from_mean = np.mean([np.mean(np.sign(own) != np.sign(own.mean())) for own in scores])
        known[task] = {"task": task, "truth": float(truth), "from_mean": float(from_mean)}
    tasks = tuple(lab.Task(task, 3, lab.classification) for task in known)
    train, held_out = (Split(texts[name], labels[name]) for name in ("train", "held_out"))
    benchmark = replace(
        load_benchmark("vader", None, seed, {}),
        tasks=tasks,
        train=train,
        validation=held_out,
        test=held_out,
        noisy_tasks=(tasks[-1].name,),
    )
    torch.manual_seed(seed)
    with TemporaryDirectory() as place:  # equal weights
        run = lab.train(benchmark, "uniform", out=Path(place) / "run", seed=seed, device="cpu")
    found = predicted(run.network.eval(), benchmark, held_out)
    alone = excessmtl.diagnose(found.predictions, found.targets, found.kinds)
    twice = excessmtl.diagnose(found.predictions, found.targets, found.kinds, second_labels=labels["again"])
    for task, row in known.items():
        for name, report in (("twice", twice), ("alone", alone)):
            row |= {name: report[task].wrong_labels, f"{name}_verdict": report[task].verdict}
        row["samples"] = twice[task].samples
    return pd.DataFrame(known.values())
