"""Out-of-sample predictions for every training sample of every task: k networks, each trained without one fold."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from excessmtl.diagnosis import Report
from excessmtl.files import atomic_write
from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.noise import apply as with_noise
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.record import RunRecord
from excessmtl.lab.training.batches import Rows, noise_of, random_orders
from excessmtl.lab.training.held_out import HeldOutData, predicted, trained
from excessmtl.lab.training.loop import Run
from excessmtl.lab.training.progress import Watcher
from excessmtl.lab.training.resolve import load_benchmark, resolve

FILE = "predictions.npz"


def cross_validate(
    config: RunConfig, out: Path, folds: int = 5, benchmark: Benchmark | None = None, watcher: Watcher | None = None
) -> Report:
    """Train `folds` networks on all tasks at once, and diagnose what each says about the fold it has not seen.

    `out` gets a run folder per fold and `predictions.npz`, with `TASK/predictions` and `TASK/targets` in the order of
    the training samples, and for a table `file_rows` and `ids`, the row of its file that each of them is and its id.
    Folds that are finished are not trained again. The run's label noise is put on all training samples before they
    are divided, so held-out labels are as noisy as the others.
    """
    made = load_benchmark(config) if benchmark is None else benchmark
    if not isinstance(folds, int) or isinstance(folds, bool) or folds < 2:
        raise ValueError(f"folds must be a whole number of at least 2, found {folds!r}")
    smallest = min(made.train.length(task.name) for task in made.tasks)
    if smallest < 2 * folds:
        raise ValueError(f"folds is {folds}, but a task has only {smallest} training samples; take fewer folds")
    resolved = resolve(config, made, torch.device("cpu"), by_name=benchmark is None)
    noise = replace(noise_of(resolved), redraw_each_epoch=False)
    noisy = with_noise(made.train, made.tasks, noise)
    about = RunRecord.of(resolved, made, None, by_name=benchmark is None)
    data = json.dumps([about.data_checksum, about.config["benchmark_options"]], sort_keys=True, default=str)
    # The noise is in the data already.
    plain = replace(config, noise=0.0, noisy_tasks=(), data=None, benchmark_options={}, redraw_each_epoch=False)
    rows, parts = [], []
    for number, (kept, taken) in enumerate(divided(noisy, folds, config.seed), start=1):
        source = f"{made.source}; fold {number} of {folds}"
        if benchmark is None:  # and so are folds of other data
            source += f" (data {sha256(data.encode()).hexdigest()[:8]})"
        if noise.level:  # folds of other noise in the same folder are then told apart
            source += f", {noise.kind} noise {noise.level:g} (seed {noise.seed}) in {', '.join(noise.tasks)}"
        fold = replace(made, source=source, train=noisy.rows(kept), validation=noisy.rows(taken))
        place = out / f"fold-{number}"
        Run(plain, place, resume=True, watcher=watcher, benchmark=fold).execute()
        network, _, _ = trained(place, fold)
        rows.append(taken)
        parts.append(predicted(network, fold, fold.validation))
    joined = replace(
        parts[0],
        predictions=_joined(rows, [part.predictions for part in parts]),
        targets=_joined(rows, [part.targets for part in parts]),
        file_rows=made.train.file_rows,
        ids=made.train.ids,
    )
    with atomic_write(out / FILE) as file:
        np.savez_compressed(file, **_arrays(joined))  # type: ignore[arg-type]
    return joined.diagnose()


def divided(split: Split, folds: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """(the rest, one fold) for every fold; tasks with inputs of their own are divided each for itself."""
    orders = random_orders(split, seed)
    for number in range(folds):
        inside = {task: torch.arange(len(order)) % folds == number for task, order in orders.items()}
        yield (
            {task: order[~inside[task]] for task, order in orders.items()},
            {task: order[inside[task]] for task, order in orders.items()},
        )


def _joined(rows: list[Rows], values: list[Mapping[str, Tensor | None]]) -> dict[str, Tensor | None]:
    """The values of all folds in the order of their rows; of maps, whose places are drawn, one fold after the other."""
    joined: dict[str, Tensor | None] = {}
    for task in values[0]:
        order = torch.cat([own[task] for own in rows])
        stacked = torch.cat([value for own in values if (value := own[task]) is not None])
        joined[task] = stacked[order.argsort()] if len(stacked) == len(order) else stacked
    return joined


def _arrays(data: HeldOutData) -> dict[str, np.ndarray]:
    named = {f"{task}/predictions": value for task, value in data.predictions.items()}
    named |= {f"{task}/targets": value for task, value in data.targets.items()}
    named["file_rows"] = data.file_rows  # no task is called so: those have a slash
    arrays = {name: value.numpy() for name, value in named.items() if value is not None}
    return arrays if data.ids is None else {**arrays, "ids": data.ids}
