"""Is there something to learn in the data that needs no download? Trained networks against trivial predictors.

The trivial predictor gives every example (and pixel) the same answer, a good one for the metric by the training labels:
the most frequent class, the mean, the median weighted by 1/depth for relative errors, the mean normal, and the most
frequent direction for the share of normals within an angle. The network is trained with uniform weights and the
benchmark's own recipe.
"""

import argparse
import itertools
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed
from torch import Tensor
from torch.nn import functional as F

from excessmtl.files import write_whole
from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.data.kinds import classification, normals, regression, segmentation
from excessmtl.lab.data.tasks import IGNORED, Task
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.batches import Inputs, make_batches
from excessmtl.lab.training.evaluate import scores
from excessmtl.lab.training.loop import train
from excessmtl.lab.training.resolve import load_benchmark

BENCHMARKS = ("multimnist", "digit-domains", "simulated-arm", "synthetic-rooms")
SEEDS = (0, 1)
# Of normals also the mean angle: it tells more than the share within 11.25 degrees, which a constant that points up
# gets for the floor.
FURTHER = {normals: ("angle_mean",)}
_CANDIDATES, _SAMPLE = 2_000, 50_000


def metrics(task: Task) -> tuple[str, ...]:
    """What is compared for a task of this kind."""
    return (task.kind.score, *FURTHER.get(task.kind, ()))


def constant_output(task: Task, target: Tensor, metric: str) -> Tensor:
    """What the trivial predictor says about one example, from all training targets of a task."""
    if task.kind in (classification, segmentation):
        counts = target[target != IGNORED].long().bincount(minlength=task.outputs)
        answer = F.one_hot(counts.argmax(), task.outputs).float()
    elif task.kind == regression:
        answer = target.reshape(len(target), -1).mean(dim=0)
    else:
        values = target.transpose(0, 1).flatten(1)
        values = values[:, (values != 0).any(dim=0)]
        answer = {"rel_error": _weighted_median, "within_11.25": _most_frequent_direction}.get(metric, _mean)(values)
    pixels = target.shape[1:] if task.kind == segmentation else target.shape[2:]
    return answer.reshape(-1, *[1] * len(pixels)).expand(-1, *pixels)


def _mean(values: Tensor) -> Tensor:
    return values.mean(dim=1)


def _weighted_median(values: Tensor) -> Tensor:
    """argmin over c of the sum of |v - c| / v."""
    ordered = values.flatten().double().sort().values
    shares = ordered.reciprocal().cumsum(0)
    return ordered[torch.searchsorted(shares, shares[-1] / 2)].float().reshape(1)


def _most_frequent_direction(values: Tensor) -> Tensor:
    """Of some of the normals, the one with most of the others within 11.25 degrees."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(values.shape[1], generator=generator)
    candidates, sample = values[:, order[:_CANDIDATES]], values[:, order[-_SAMPLE:]]
    close = (candidates.T @ sample > math.cos(math.radians(11.25))).sum(dim=1)
    return candidates[:, close.argmax()]


def trivial_scores(benchmark: Benchmark) -> dict[str, float]:
    """Scores of the trivial predictor on the test split, by `task/metric`."""
    batches = make_batches(benchmark.test, 256, torch.device("cpu"))
    kept: dict[str, float] = {}
    for rank in range(max(len(metrics(task)) for task in benchmark.tasks)):
        chosen = {task: metrics(task)[min(rank, len(metrics(task)) - 1)] for task in benchmark.tasks}
        answers = {
            task.name: constant_output(task, benchmark.train.targets[task.name], metric)
            for task, metric in chosen.items()
        }

        def predict(inputs: Inputs, answers: Mapping[str, Tensor] = answers) -> Mapping[str, Tensor]:
            own = dict.fromkeys(answers, inputs) if isinstance(inputs, Tensor) else inputs
            return {task: answers[task].expand(len(own[task]), *answers[task].shape) for task in own}

        found = scores(predict, benchmark, batches)
        kept |= {f"{task.name}/{metric}": found[f"{task.name}/{metric}"] for task, metric in chosen.items()}
    return kept


def one_cell(name: str, seed: int, out: Path) -> list[dict[str, Any]]:
    """Rows of the table for one benchmark and seed, in a process of its own."""
    torch.set_num_threads(1)
    config = RunConfig(name, "uniform", seed=seed, device="cpu")
    summary = train(config, out / f"{name}-seed-{seed}", resume=True)
    benchmark = load_benchmark(config)
    trivial = trivial_scores(benchmark)
    directions = {(task.name, own.name): own.higher_is_better for task in benchmark.tasks for own in task.kind.metrics}
    return [
        {
            "benchmark": name,
            "task": task.name,
            "metric": metric,
            "better": "higher" if directions[task.name, metric] else "lower",
            "epochs": summary["epochs"],
            "seed": seed,
            "trivial": round(trivial[f"{task.name}/{metric}"], 4),
            "trained": round(summary["metrics"][f"{task.name}/{metric}"], 4),
        }
        for task in benchmark.tasks
        for metric in metrics(task)
    ]


def main() -> None:
    """Run what has not been run, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/stand-ins"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    options = parser.parse_args()
    # The bundled digits are the subject here, also where full MNIST lies in the cache.
    os.environ["EXCESSMTL_DATA"] = str(options.out / "no-data")
    cells = itertools.product(BENCHMARKS, SEEDS)
    found = Parallel(n_jobs=options.jobs)(delayed(one_cell)(name, seed, options.out) for name, seed in cells)
    rows = pd.DataFrame([row for cell in found for row in cell])
    write_whole(Path("docs/data/stand_ins.csv"), rows.to_csv(index=False).encode())


if __name__ == "__main__":
    main()
