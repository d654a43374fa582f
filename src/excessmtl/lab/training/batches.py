"""The data of a run: training batches with label noise, clean data held out, and the splits for evaluation.

A split is tensors on the device, or a `Dataset` that is read while training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Generator, Tensor
from torch.utils.data import DataLoader, default_collate

from excessmtl.lab.data.base import Benchmark, Split, Targets
from excessmtl.lab.data.noise import Noise
from excessmtl.lab.data.noise import apply as with_noise
from excessmtl.lab.data.tasks import labelled
from excessmtl.lab.runs.config import Resolved

Rows = dict[str, Tensor]
"""Task -> rows of a split."""
Inputs = Any
"""A tensor for all tasks, `ByTask`, or whatever the items of a `Dataset` collate to."""
_CLEAN_SHARE = 0.2
_EVALUATED_AT_ONCE = 4
"""Batches; without gradients there is room for them."""


class ByTask(dict[str, Any]):
    """Inputs of each task, where tasks have inputs of their own."""


@dataclass(frozen=True)
class Batch:
    """Stored inputs and targets of one step; a task may be missing from a last, uneven evaluation batch."""

    inputs: Inputs
    targets: Targets


class Share(NamedTuple):
    """Which part of every training batch this process takes."""

    rank: int = 0
    processes: int = 1


WHOLE = Share()


class Batches:
    """A split in batches, and the order in which a training epoch visits them.

    Inputs are tensors that already lie on the device (no Python per sample, no worker processes), or a `Dataset` whose
    items are read by `workers` processes when they are needed. Tasks that share their inputs are drawn together. Tasks
    with inputs of their own are shuffled each for itself; an epoch is as long as the longest of them, and shorter ones
    start again (in a new order) until it is over.
    """

    def __init__(
        self, split: Split, size: int, device: torch.device, share: Share = WHOLE, *, workers: int = 0
    ) -> None:
        self.size, self.device, self.share, self.workers = size, device, share, workers
        self.inputs: Any = ByTask(split.inputs) if isinstance(split.inputs, Mapping) else split.inputs
        if isinstance(self.inputs, Tensor | ByTask):
            self.inputs = move_data_to_device(self.inputs, device)
        self.targets: Targets = move_data_to_device(split.targets, device)
        self.incomplete = frozenset(task for task, target in split.targets.items() if labelled(target) is not None)
        """Tasks without a label for some examples."""

    @property
    def steps(self) -> int:
        """Steps per epoch; a last batch of uneven size counts only where it is all there is."""
        return max(1, max(len(target) for target in self.targets.values()) // self.size)

    def shuffled(self, seed: int, epoch: int, limit: int | None = None) -> Iterator[Batch]:
        """One epoch of training batches, given by seed and epoch alone: a resumed run sees the same."""
        steps = self.steps if limit is None else min(limit, self.steps)
        generator = Generator().manual_seed(seed * 1_000_003 + epoch)
        orders: Rows = {}
        for task, target in self.targets.items():
            if not orders or isinstance(self.inputs, ByTask):
                length = len(target)
                size = min(self.size, length) // self.share.processes * self.share.processes
                rounds = -(-steps * size // length)
                order = torch.cat([torch.randperm(length, generator=generator) for _ in range(rounds)])
                mine = order[: steps * size].view(steps, size).chunk(self.share.processes, dim=1)[self.share.rank]
            orders[task] = mine.to(self.device)
        return self._read([dict(zip(orders, rows, strict=True)) for rows in zip(*orders.values(), strict=True)])

    def in_order(self, limit: int | None = None) -> Iterator[Batch]:
        """Every example once, for evaluation."""
        rows = {
            task: torch.split(torch.arange(len(target), device=self.device), self.size)
            for task, target in self.targets.items()
        }
        steps = range(max(map(len, rows.values())))[:limit]
        return self._read([{task: own[step] for task, own in rows.items() if step < len(own)} for step in steps])

    def _read(self, steps: Sequence[Rows]) -> Iterator[Batch]:
        """The batches of the rows that each step names for each task."""
        items = None if isinstance(self.inputs, Tensor | ByTask) else iter(self._items(steps))
        for chosen in steps:
            targets = {task: self.targets[task].index_select(0, rows) for task, rows in chosen.items()}
            if items is not None:
                inputs = move_data_to_device(next(items), self.device)
            elif isinstance(self.inputs, ByTask):
                inputs = ByTask({task: self.inputs[task].index_select(0, rows) for task, rows in chosen.items()})
            else:
                inputs = self.inputs.index_select(0, next(iter(chosen.values())))
            yield Batch(inputs, targets)

    def _items(self, steps: Sequence[Rows]) -> DataLoader[Any]:
        """Inputs from a `Dataset`, where the rows are the same for all tasks."""
        return DataLoader(
            self.inputs,
            batch_sampler=[next(iter(chosen.values())).tolist() for chosen in steps],
            collate_fn=_inputs,
            num_workers=self.workers,
            generator=Generator().manual_seed(0),  # or the loader would draw a seed from the run's random numbers
        )


def _inputs(items: list[Any]) -> Any:
    """The inputs of items (inputs, targets), as one batch."""
    return default_collate([item[0] for item in items])


def prepared(batch: Batch, benchmark: Benchmark) -> Inputs:
    """What the network takes."""
    if isinstance(batch.inputs, ByTask):
        return ByTask({task: benchmark.prepare(own) for task, own in batch.inputs.items()})
    return benchmark.prepare(batch.inputs)


class RunData:
    """What a run trains and is evaluated on.

    `holds_out`: whether the method looks at losses on clean data that is not trained on.
    """

    held_out: Batches | None
    train: Batches
    evaluated: dict[str, Batches]

    def __init__(self, config: Resolved, benchmark: Benchmark, holds_out: bool) -> None:
        self.config, self.benchmark = config, benchmark
        self.clean, self._set_aside = benchmark.train, None
        if holds_out:
            if config.devices > 1:  # products of gradients on two shares are not those of the whole batch
                raise ValueError(f"devices must be 1 for {config.method!r}, found {config.devices}")
            # The paper gives MOML a fifth of the training data, clean; noise goes into the rest.
            self.clean, self._set_aside = split_off(benchmark.train, _CLEAN_SHARE, config.seed)
        self.noisy = self._noisy(0)

    def move(self, device: torch.device, share: Share) -> None:
        """Make the batches, now that it is known where they are needed."""
        self.device, self.share = device, share
        self.train = self._batches(self.noisy)
        self.held_out = None if self._set_aside is None else self._batches(self._set_aside)
        splits = {"validation": self._validation(), "test": self.benchmark.test}
        self.evaluated = {
            name: Batches(split, _EVALUATED_AT_ONCE * self.config.batch_size, device, workers=self.benchmark.workers)
            for name, split in splits.items()
            if all(split.length(task.name) for task in self.benchmark.tasks)
        }

    @property
    def incomplete(self) -> frozenset[str]:
        """Tasks without a label for some examples."""
        return self.train.incomplete | (frozenset() if self.held_out is None else self.held_out.incomplete)

    def of_epoch(self, epoch: int) -> Batches:
        """The training batches of an epoch, with new noise if that is wanted."""
        if self.config.redraw_each_epoch:
            self.train = self._batches(self._noisy(epoch))
        return self.train

    def _batches(self, split: Split) -> Batches:
        return Batches(split, self.config.batch_size, self.device, self.share, workers=self.benchmark.workers)

    def _validation(self) -> Split:
        split = self.benchmark.validation
        if not self.config.noisy_validation or not all(map(len, split.targets.values())):
            return split
        return with_noise(split, self.benchmark.tasks, noise_of(self.config), part="validation")

    def _noisy(self, epoch: int) -> Split:
        return with_noise(self.clean, self.benchmark.tasks, noise_of(self.config), epoch)


def noise_of(config: Resolved) -> Noise:
    """The plan for the label noise of a run."""
    return Noise(
        level=config.noise,
        tasks=config.noisy_tasks,
        seed=config.noise_seed,
        exclude_true=config.exclude_true,
        redraw_each_epoch=config.redraw_each_epoch,
        kind=config.noise_kind,
    )


def random_orders(split: Split, seed: int) -> Rows:
    """Task -> its samples in a random order: the same for all, or one for each where they have inputs of their own."""
    generator = torch.Generator().manual_seed(seed)
    orders: Rows = {}
    for task, target in split.targets.items():
        if not orders or isinstance(split.inputs, Mapping):
            order = torch.randperm(len(target), generator=generator)
        orders[task] = order
    return orders


def split_off(split: Split, share: float, seed: int) -> tuple[Split, Split]:
    """(the rest, a random share) of a split; tasks with inputs of their own are divided each for itself."""
    orders = random_orders(split, seed)
    counts = {task: max(1, round(share * len(order))) for task, order in orders.items()}
    kept = {task: order[counts[task] :] for task, order in orders.items()}
    taken = {task: order[: counts[task]] for task, order in orders.items()}
    return split.rows(kept), split.rows(taken)
