"""The trained networks of the study, and their predictions on data that they have not seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from excessmtl import lab
from excessmtl.files import atomic_write
from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.find import load_benchmark
from excessmtl.lab.training.held_out import predicted
from research.diagnosis.noises import disturbed

_SPLITS = {"train": 0, "test": 2}
"""Those that get noise, and the number by which each has draws of its own."""


@dataclass(frozen=True)
class World:
    """A benchmark of the study and how it is trained."""

    name: str
    benchmark: str
    epochs: int | None = None
    """None: the benchmark's own."""
    kinds: tuple[str, ...] = ("symmetric",)
    levels: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    """The name of data that is not bundled."""
    data: str | None = None
    """Where it is."""
    title: str = ""


@dataclass(frozen=True)
class Cell:
    """One network."""

    world: World
    kind: str
    level: float
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.world.name}-{self.kind}-{self.level:g}-{self.seed}"


@dataclass(frozen=True)
class HeldOut:
    """What one task of a cell gave on held-out data."""

    cell: Cell
    task: str
    kind: str
    noisy: bool
    """Whether the task received the cell's noise."""
    predictions: np.ndarray
    targets: np.ndarray
    clean: np.ndarray


def record(cell: Cell, folder: Path, device: str = "cpu") -> Path:
    """Train the cell unless its file is there; the file."""
    path = folder / f"{cell.name}.npz"
    if path.exists():
        return path
    benchmark = load_benchmark(cell.world.benchmark, cell.world.data, cell.seed, dict(cell.world.options))
    noisy = {split: noisy_split(benchmark, split, cell) for split in _SPLITS}
    torch.manual_seed(cell.seed)
    with TemporaryDirectory() as place:
        trained = lab.train(
            replace(benchmark, train=noisy["train"]),
            out=Path(place) / "run",
            seed=cell.seed,
            epochs=cell.world.epochs,
            device=device,
        )
    found = predicted(trained.network.cpu(), benchmark, noisy["test"])
    kept: dict[str, np.ndarray] = {}
    for task, output in found.predictions.items():
        labels = found.targets[task]
        assert output is not None
        assert labels is not None
        kept[f"test/{task}/predictions"] = output.numpy().astype(np.float32)
        kept[f"test/{task}/targets"] = labels.numpy()
        kept[f"test/{task}/clean"] = benchmark.test.targets[task].numpy()
        kept[f"kind/{task}"] = np.array([found.kinds[task], str(task in benchmark.noisy_tasks)])
    with atomic_write(path) as file:
        np.savez_compressed(file, **kept)  # type: ignore[arg-type]
    return path


def read(cell: Cell, folder: Path) -> list[HeldOut]:
    """The tasks of a recorded cell."""
    with np.load(folder / f"{cell.name}.npz", allow_pickle=False) as kept:
        found = []
        for name in kept.files:
            if name.startswith("kind/"):
                task, (kind, noisy) = name.removeprefix("kind/"), kept[name]
                parts = [kept[f"test/{task}/{part}"] for part in ("predictions", "targets", "clean")]
                found.append(HeldOut(cell, task, str(kind), noisy == "True" and cell.level > 0, *parts))
        return found


def noisy_split(benchmark: Benchmark, split: str, cell: Cell) -> Split:
    """A split of the benchmark with the cell's noise."""
    clean: Split = getattr(benchmark, split)
    targets = dict(clean.targets)
    for task in benchmark.tasks:
        if task.name in benchmark.noisy_tasks and cell.level:
            inputs: Any = clean.inputs
            own = inputs[task.name] if isinstance(inputs, Mapping) else inputs
            targets[task.name] = disturbed(
                cell.kind, task, own, targets[task.name], cell.level, cell.seed, _SPLITS[split]
            )
    return replace(clean, targets=targets)
