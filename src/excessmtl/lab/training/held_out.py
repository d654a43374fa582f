"""Predictions of a run for its validation split, with labels as bad as those it was trained on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from excessmtl.diagnosis import Report, diagnose
from excessmtl.diagnosis.inputs import of_both_classes
from excessmtl.lab.data import find
from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.kinds import LABELS
from excessmtl.lab.data.noise import apply as with_noise
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.runs import checkpoint
from excessmtl.lab.runs.config import Resolved
from excessmtl.lab.runs.record import RunRecord, refuse_changed_data
from excessmtl.lab.training.batches import Batches, noise_of, prepared
from excessmtl.lab.training.model import Network, make_network
from excessmtl.lab.training.resolve import load_benchmark

_AT_ONCE = 256
_PIXELS = 20
"""Of a map, so many places stand for the picture: those of one picture are no independent samples."""


@dataclass(frozen=True)
class HeldOutData:
    """What `excessmtl.diagnose` takes."""

    predictions: dict[str, Tensor | None]
    targets: dict[str, Tensor | None]
    kinds: dict[str, str]
    file_rows: Tensor | None = None
    """Of a table: the row of its file that each sample stands in."""
    ids: NDArray[np.str_] | None = None
    """Of a table with an id column: the id of each sample."""
    originals: Mapping[str, Callable[[float], float | str]] = field(default_factory=dict)
    """Of a table: task -> from a target to what the file has."""

    def diagnose(self) -> Report:
        """The report, which names rows of the file where the samples are such."""
        rows = None if self.file_rows is None else self.file_rows.tolist()
        ids = None if self.ids is None else self.ids.tolist()
        predictions = {
            name: output if output is None or self.kinds[name] != "binary" else of_both_classes(output)
            for name, output in self.predictions.items()
        }
        report = diagnose(predictions, self.targets, self.kinds)
        return replace(report, file_rows=rows, ids=ids, originals=self.originals)


def diagnose_run(run: Path, benchmark: Benchmark | None = None, trust: bool = False) -> Report:
    """The diagnosis of a run after its last finished epoch.

    `benchmark`: the object that the run was trained on, where it was not loaded by a name.
    `trust`: whether import paths in the folder may be followed.
    """
    return held_out_data(run, benchmark, trust).diagnose()


def held_out_data(run: Path, benchmark: Benchmark | None = None, trust: bool = False) -> HeldOutData:
    """Outputs of the network for the validation split, and its labels, disturbed as those of the training split.

    The validation split of a benchmark is clean. The run's label noise is put on it by the same plan, drawn anew,
    so that the labels are as bad as the training labels: that is what a user has who holds out a part of the data.
    """
    network, made, config = trained(run, benchmark, trust)
    noise = noise_of(config)
    disturbed = replace(noise, tasks=tuple(task for task in noise.tasks if made.validation.length(task)))
    return predicted(network, made, with_noise(made.validation, made.tasks, disturbed, part="validation"))


def trained(run: Path, benchmark: Benchmark | None = None, trust: bool = False) -> tuple[Network, Benchmark, Resolved]:
    """The network of a run after its last finished epoch, in evaluation mode; its benchmark; its settings."""
    if not (run / "config.yaml").is_file():
        raise ValueError(f"{run} holds no run; pass the folder that was given as out")
    record = RunRecord.read(run / "config.yaml")
    config = Resolved.from_dict(record.config)
    if benchmark is None and not trust and find.is_import_path(config.benchmark):
        # The path stands only in the folder of a run, which may be anybody's.
        name = config.benchmark
        raise ValueError(
            f"{run / 'config.yaml'} names the benchmark {name!r}, an import path: using the run would import "
            f"{name.partition(':')[0]} and call {name}; if you trust the folder, pass --trust (trust=True in Python)"
        )
    state = checkpoint.load(run / "checkpoint")
    if state is None:
        raise ValueError(f"the run in {run} has not finished an epoch yet; go on with it first")
    if benchmark is None:
        refuse_changed_data(config.benchmark, config.data, record.data_checksum, run)
    made = load_benchmark(config) if benchmark is None else benchmark
    network = make_network(config, made)
    with checkpoint.restoring(run / "checkpoint"):
        network.load_state_dict(state["model"])
    return network.eval(), made, config


@torch.no_grad()
def predicted(network: nn.Module, benchmark: Benchmark, split: Split) -> HeldOutData:
    """The network's outputs for a split; of maps, those of some places in every picture."""
    tasks = {task.name: task for task in benchmark.tasks if task.kind.loss in LABELS}
    if not tasks:
        raise ValueError(
            f"the tasks of {benchmark.name!r} are of kinds of your own; pass their predictions to diagnose"
        )
    parts: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in tasks}
    generator = torch.Generator().manual_seed(0)
    if any(split.length(name) for name in tasks):
        for batch in Batches(split, _AT_ONCE, torch.device("cpu"), workers=benchmark.workers).in_order():
            outputs = network(prepared(batch, benchmark))
            for name in tasks:
                if name in batch.targets:
                    parts[name].append(_samples(tasks[name], outputs[name].float(), batch.targets[name], generator))
    joined = {name: [torch.cat(part) for part in zip(*own, strict=True)] for name, own in parts.items() if own}
    predictions, targets = ({name: joined[name][i] if name in joined else None for name in tasks} for i in (0, 1))
    kinds = {name: LABELS[task.kind.loss] for name, task in tasks.items()}
    return HeldOutData(predictions, targets, kinds, split.file_rows, split.ids, benchmark.originals)


def _samples(task: Task, output: Tensor, target: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Outputs and labels of a batch; of a map, those of some of the places of every picture."""
    if output.ndim < 3:
        return output, target
    spots = torch.randint(output[0, 0].numel(), (len(output), 1, _PIXELS), generator=generator)
    values = output.flatten(2)
    values = values.gather(2, spots.expand(-1, values.shape[1], -1)).transpose(1, 2).flatten(0, 1)
    if LABELS[task.kind.loss] == "classification":
        return values, target.flatten(1).gather(1, spots[:, 0]).flatten()
    labels = target.reshape(len(target), output.shape[1], -1)
    labels = labels.gather(2, spots.expand(-1, labels.shape[1], -1)).transpose(1, 2).flatten(0, 1)
    return values, labels.where((labels != 0).any(1, keepdim=True), torch.nan)  # zero: unknown depth, unknown normal
