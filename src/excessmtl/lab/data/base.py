"""What a benchmark is: tasks, three splits, a network and the recipe it is trained with."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.utils.data import Dataset, Subset

from excessmtl.extras import needed_by
from excessmtl.lab.data.tasks import Task

Targets = dict[str, Tensor]
_FORM = "(inputs, {task: target})"
Augment = Callable[[Tensor, Targets, Generator], tuple[Tensor, Targets]]


class DataNotFoundError(ValueError):
    """The benchmark's data is not there; the message says where to get it and which stand-in to use."""


def cache_folder() -> Path:
    """`EXCESSMTL_DATA` where it is set, else a folder of ours in the platform's cache; not created here."""
    if chosen := os.environ.get("EXCESSMTL_DATA"):
        return Path(chosen).expanduser()
    with needed_by("the cache folder", "lab"):
        from platformdirs import user_cache_path

    return user_cache_path("excessmtl")


@dataclass(frozen=True)
class Split:
    """Examples of one split.

    Args:
        inputs: one tensor when all tasks look at the same inputs (then every target has its length), or a dict
            task -> tensor when each task has inputs of its own (lengths may differ between tasks). A `Dataset`
            is read while training: `split_of` makes such a split.
        targets: task -> all targets, in the order of the inputs. NaN marks a missing label.
        file_rows: of a table, the row of its file that each example stands in: 0 is the first below the header.
        ids: of a table with an id column, the id of each example, as texts.
    """

    inputs: Tensor | dict[str, Tensor] | Dataset[Any]
    targets: Targets
    file_rows: Tensor | None = field(default=None, kw_only=True)
    ids: NDArray[np.str_] | None = field(default=None, kw_only=True)

    def length(self, task: str) -> int:
        """How many examples `task` has in this split."""
        return len(self.targets[task])

    def rows(self, chosen: Mapping[str, Tensor]) -> "Split":
        """The rows that are named for each task, by numbers or a mask; the same ones where tasks share their inputs."""
        targets = {task: target[chosen[task]] for task, target in self.targets.items()}
        if isinstance(self.inputs, Mapping):
            return Split({task: own[chosen[task]] for task, own in self.inputs.items()}, targets)
        inputs: Any = self.inputs
        first = next(iter(chosen.values()))
        return Split(
            inputs[first] if isinstance(inputs, Tensor) else Subset(inputs, first.tolist()),
            targets,
            file_rows=None if self.file_rows is None else self.file_rows[first],
            ids=None if self.ids is None else self.ids[first.numpy()],
        )


def split_of(source: Dataset[Any]) -> Split:
    """A split whose items are pairs (inputs, {task: target}), read while training.

    All targets are read once, here: label noise, normalised errors and missing labels need them. A `Dataset` that
    has them in memory may offer them as a mapping `targets`, task -> tensor; its items are then read for their
    inputs alone. Items must have the same target each time they are read: random augmentation belongs to the inputs.
    """
    given = getattr(source, "targets", None)
    if isinstance(given, Mapping) and given and all(isinstance(target, Tensor) for target in given.values()):
        return Split(source, dict(given))
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise ValueError(
            f"{type(source).__name__} has no length or no items by number; pass a Dataset that has both, not its "
            "DataLoader"
        )
    targets: dict[str, list[Tensor]] = {}
    for item in (source[index] for index in range(len(source))):
        if not (isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[1], Mapping)):
            raise ValueError(f"items of a dataset must be pairs {_FORM}, found {type(item).__name__}")
        for task, target in item[1].items():
            targets.setdefault(task, []).append(torch.as_tensor(target))
    if not targets:
        raise ValueError(f"the dataset has no items; it must have at least one pair {_FORM}")
    lengths = {task: len(own) for task, own in targets.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"every item must have a target for every task (NaN where it is missing), found {lengths}")
    return Split(source, {task: torch.stack(own) for task, own in targets.items()})


def standardise(train: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """`train` and `others` as float32, every column by the mean and the deviation it has in `train`.

    A column that is constant in `train` is only shifted.
    """
    mean = train.double().mean(0)
    deviation = train.double().std(0, correction=0)
    deviation = deviation.where(deviation > 1e-8 * mean.abs().clamp(min=1), 1.0)
    return tuple(((rows.double() - mean) / deviation).float() for rows in (train, *others))


def shuffled(count: int, shares: Sequence[float], *key: int) -> list[Tensor]:
    """The numbers below `count` in the order that `key` decides, divided: these shares of them, and the rest."""
    order = np.random.default_rng(key).permutation(count)
    ends = np.cumsum([round(share * count) for share in shares])
    return [torch.from_numpy(rows) for rows in np.split(order, ends)]


def columns(names: Iterable[str], values: Tensor) -> Targets:
    """Task -> its column of a table, shaped [n, 1] as the output of its head is."""
    return dict(zip(names, values.T.contiguous().unsqueeze(-1), strict=True))


@dataclass(frozen=True)
class Recipe:
    """How the network is trained unless a run says otherwise."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    epochs: int
    optimiser: str = "adam"
    optimiser_options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the optimiser, by torch's names: `momentum`, `betas`."""
    schedule: str = "constant"
    warmup_steps: int = 0


@dataclass(frozen=True)
class Benchmark:
    """Everything a training run needs to know about one benchmark."""

    name: str
    source: str
    """What the data really is, for tables and titles: "MNIST, 60,000 pairs", "bundled digits, 5,000"..."""
    tasks: tuple[Task, ...]
    train: Split
    validation: Split
    test: Split
    _: KW_ONLY
    recipe: Recipe
    noisy_tasks: tuple[str, ...]
    """The tasks that receive label noise unless told otherwise (the paper's)."""
    build_trunk: Callable[[], nn.Module]
    build_head: Callable[[Task], nn.Module]
    prepare: Callable[[Tensor], Tensor] = field(default=lambda inputs: inputs.float())
    """Stored inputs (often uint8) of one batch, already on the device -> what the network takes."""
    augment: Augment | None = None
    """Training only: (prepared inputs, targets, CPU generator) -> the same, augmented."""
    workers: int = 0
    """Processes that read a `Dataset`; 0: the training process itself."""
    originals: Mapping[str, Callable[[float], float | str]] = field(default_factory=dict)
    """Of a table: task -> from a target to what the file has, the name of a class or a number in its unit."""


Loader = Callable[..., Benchmark]
"""Reads or makes the data. It is given `data` and `seed` where it names them; its other arguments are options."""


@dataclass(frozen=True)
class Entry:
    """A row of the registry."""

    name: str
    load: Loader
    summary: str
    stand_in: str | None = None
    data: Path | None = None
    """Where the data is unless a run says otherwise."""


_REGISTRY: dict[str, Entry] = {}
_MODULES = (
    *("digit_domains", "lidc", "multimnist", "nyuv2", "office_home", "qm9", "sarcos", "school"),
    *("simulated_arm", "synthetic_rooms", "tox21", "vader"),
)
"""Importing one registers the benchmark of its name."""


def benchmark(name: str, summary: str, stand_in: str | None = None) -> Callable[[Loader], Loader]:
    """Register `load` under `name`; `stand_in` names the benchmark to use where the data is missing."""

    def register(load: Loader) -> Loader:
        _REGISTRY[name] = Entry(name, load, summary, stand_in)
        return load

    return register


def names() -> list[str]:
    """Of all registered benchmarks; none of them is imported."""
    return sorted({*_REGISTRY, *(module.replace("_", "-") for module in _MODULES)})


def registry() -> Mapping[str, Entry]:
    """All registered benchmarks by name."""
    return {name: entry for name in names() if (entry := registered(name)) is not None}


def registered(name: str) -> Entry | None:
    """The benchmark of this name, if there is one; the others are not imported."""
    module = name.replace("-", "_")
    if module in _MODULES:
        import_module(f"{__package__}.{module}")
    return _REGISTRY.get(name)
