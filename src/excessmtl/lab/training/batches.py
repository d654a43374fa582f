"""The data of a run: training batches with label noise, clean data held out, and the splits for evaluation.

A split is tensors on the device, a `Dataset` that is read while training, or a `DataLoader`.
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
"""Task -> the rows of one step, or [steps, batch size] those of every step of an epoch."""
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


class OrderedBatches:
    """Targets in memory, and the order in which a training epoch visits them.

    Inputs are tensors that already lie on the device (no Python per sample, no worker processes), or a `Dataset` whose
    items are read when they are needed. Tasks that share their inputs are drawn together. Tasks with inputs of their
    own are shuffled each for itself; an epoch is as long as the longest of them, and shorter ones start again (in a new
    order) until it is over.
    """

    def __init__(self, split: Split, size: int, device: torch.device, share: Share, workers: int) -> None:
        self.size, self.device, self.share, self.workers = size, device, share, workers
        self.separate = isinstance(split.inputs, Mapping)
        self.in_memory = isinstance(split.inputs, Tensor | Mapping)
        self.inputs: Any = ByTask(split.inputs) if isinstance(split.inputs, Mapping) else split.inputs
        if self.in_memory:
            self.inputs = move_data_to_device(self.inputs, device)
        self.targets: Targets = move_data_to_device(split.targets, device)
        self.incomplete = _incomplete(split)

    @property
    def steps(self) -> int:
        """Steps per epoch; a last batch of uneven size counts only where it is all there is."""
        return max(1, max(len(target) for target in self.targets.values()) // self.size)

    def shuffled(self, seed: int, epoch: int, limit: int | None = None) -> Iterator[Batch]:
        """One epoch of training batches, given by seed and epoch alone: a resumed run sees the same."""
        orders = self.orders(seed, epoch, limit)
        return self.read([dict(zip(orders, rows, strict=True)) for rows in zip(*orders.values(), strict=True)])

    def in_order(self, limit: int | None = None) -> Iterator[Batch]:
        """Every example once, for evaluation."""
        rows = {
            task: torch.split(torch.arange(len(target), device=self.device), self.size)
            for task, target in self.targets.items()
        }
        steps = range(max(map(len, rows.values())))[:limit]
        return self.read([{task: own[step] for task, own in rows.items() if step < len(own)} for step in steps])

    def read(self, steps: Sequence[Rows]) -> Iterator[Batch]:
        """The batches of these rows."""
        return map(self.select, steps) if self.in_memory else self._read_items(steps)

    def select(self, chosen: Rows) -> Batch:
        """The batch of the rows `chosen` names for each task, of inputs in memory."""
        if self.separate:
            own = {task: self.inputs[task].index_select(0, rows) for task, rows in chosen.items()}
            return Batch(ByTask(own), self._targets(chosen))
        return Batch(self.inputs.index_select(0, next(iter(chosen.values()))), self._targets(chosen))

    def _targets(self, chosen: Rows) -> Targets:
        return {task: self.targets[task].index_select(0, rows) for task, rows in chosen.items()}

    def _read_items(self, steps: Sequence[Rows]) -> Iterator[Batch]:
        """From a `Dataset`, where the rows are the same for all tasks."""
        # A generator of its own: the loader would otherwise draw a seed from the run's random numbers.
        loader = DataLoader(
            self.inputs,
            batch_sampler=[next(iter(chosen.values())).tolist() for chosen in steps],
            collate_fn=_inputs,
            num_workers=self.workers,
            generator=Generator().manual_seed(0),
        )
        for chosen, inputs in zip(steps, loader, strict=True):
            yield Batch(move_data_to_device(inputs, self.device), self._targets(chosen))

    def orders(self, seed: int, epoch: int, limit: int | None = None) -> Rows:
        """Which rows make up the batches of an epoch."""
        steps = self.steps if limit is None else min(limit, self.steps)
        generator = Generator().manual_seed(seed * 1_000_003 + epoch)
        lengths = {task: len(target) for task, target in self.targets.items()}
        groups = [[task] for task in lengths] if self.separate else [list(lengths)]
        orders = {}
        for group in groups:
            length = lengths[group[0]]
            size = min(self.size, length) // self.share.processes * self.share.processes
            rounds = -(-steps * size // length)
            order = torch.cat([torch.randperm(length, generator=generator) for _ in range(rounds)])
            mine = order[: steps * size].view(steps, size).chunk(self.share.processes, dim=1)[self.share.rank]
            orders.update(dict.fromkeys(group, mine.to(self.device)))
        return orders


def _inputs(items: list[Any]) -> Any:
    """The inputs of items (inputs, targets), as one batch."""
    return default_collate([item[0] for item in items])


class LoaderBatches:
    """A `DataLoader` as it is: its own order, batch size and workers."""

    def __init__(self, split: Split, device: torch.device) -> None:
        assert isinstance(split.inputs, DataLoader)
        self.loader, self.device = split.inputs, device
        self.incomplete = _incomplete(split)

    @property
    def steps(self) -> int:
        """Batches per epoch."""
        return len(self.loader)

    def shuffled(self, seed: int, epoch: int, limit: int | None = None) -> Iterator[Batch]:
        """One epoch; the order comes from the loader's generator, or torch's, seeded by seed and epoch."""
        own = self.loader.generator
        if own is not None:
            own.manual_seed(seed * 1_000_003 + epoch)
        return self.in_order(limit)

    def in_order(self, limit: int | None = None) -> Iterator[Batch]:
        """Every batch of the loader once."""
        for step, batch in enumerate(self.loader):
            if limit is not None and step >= limit:
                return
            yield Batch(*move_data_to_device(batch, self.device))


Batches = OrderedBatches | LoaderBatches


def make_batches(
    split: Split, size: int, device: torch.device, share: Share | None = None, workers: int = 0
) -> Batches:
    """The split in batches of `size` examples, of which this process takes its share when training."""
    if isinstance(split.inputs, DataLoader):
        return LoaderBatches(split, device)
    return OrderedBatches(split, size, device, share or Share(), workers)


def prepared(batch: Batch, benchmark: Benchmark) -> Inputs:
    """What the network takes."""
    if isinstance(batch.inputs, ByTask):
        return ByTask({task: benchmark.prepare(own) for task, own in batch.inputs.items()})
    return benchmark.prepare(batch.inputs)


def _incomplete(split: Split) -> frozenset[str]:
    """Tasks without a label for some examples of the split."""
    return frozenset(task for task, target in split.targets.items() if labelled(target) is not None)


class RunData:
    """What a run trains and is evaluated on.

    Args:
        config: the run.
        benchmark: its clean data.
        holds_out: whether the method looks at losses on clean data that is not trained on.
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
            name: make_batches(
                split, _EVALUATED_AT_ONCE * self.config.batch_size, device, workers=self.benchmark.workers
            )
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
        return make_batches(split, self.config.batch_size, self.device, self.share, self.benchmark.workers)

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


def random_orders(split: Split, seed: int) -> dict[str, Tensor]:
    """Task -> its samples in a random order: the same for all, or one for each where they have inputs of their own."""
    generator = torch.Generator().manual_seed(seed)
    orders: dict[str, Tensor] = {}
    for task, target in split.targets.items():
        if not orders or isinstance(split.inputs, Mapping):
            order = torch.randperm(len(target), generator=generator)
        orders[task] = order
    return orders


def split_off(split: Split, share: float, seed: int) -> tuple[Split, Split]:
    """(the rest, a random share) of a split; tasks with inputs of their own are divided each for itself."""
    if isinstance(split.inputs, DataLoader):
        raise ValueError("this method holds out a part of the training data; pass the Dataset, not its DataLoader")
    orders = random_orders(split, seed)
    counts = {task: max(1, round(share * len(order))) for task, order in orders.items()}
    kept = {task: order[counts[task] :] for task, order in orders.items()}
    taken = {task: order[: counts[task]] for task, order in orders.items()}
    return split.rows(kept), split.rows(taken)
