"""Batches of a split whose tensors lie on the device, and what all batches have in common."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from excessmtl.benchmarks.base import Benchmark, Split, Targets
from excessmtl.benchmarks.tasks import labelled

Orders = dict[str, Tensor]
"""Task -> [steps, batch size] the rows of every step of an epoch."""


class ByTask(dict[str, Any]):
    """Inputs of each task, where tasks have inputs of their own."""


Inputs = Any
"""A tensor for all tasks, `ByTask`, or whatever the items of a `Dataset` collate to."""


@dataclass(frozen=True)
class Batch:
    """Stored inputs and targets of one step; a task may be missing from a last, uneven evaluation batch."""

    inputs: Inputs
    targets: Targets


@dataclass(frozen=True)
class Share:
    """Which part of every training batch this process takes."""

    rank: int = 0
    processes: int = 1

    def of(self, order: Tensor) -> Tensor:
        """[steps, batch size] -> [steps, batch size / processes]."""
        return order.chunk(self.processes, dim=1)[self.rank]


class Batches(Protocol):
    """A split in batches."""

    device: torch.device
    incomplete: frozenset[str]
    """Tasks without a label for some examples."""

    @property
    def steps(self) -> int:
        """Training steps per epoch."""
        ...

    def shuffled(self, seed: int, epoch: int, limit: int | None = None) -> Iterator[Batch]:
        """One epoch of training batches, given by seed and epoch alone: a resumed run sees the same."""
        ...

    def in_order(self, limit: int | None = None) -> Iterator[Batch]:
        """Every example once, for evaluation."""
        ...


class Ordered:
    """Targets in memory, and the order in which a training epoch visits them.

    Tasks that share their inputs are drawn together. Tasks with inputs of their own are shuffled each for itself; an
    epoch is as long as the longest of them, and shorter ones start again (in a new order) until it is over.
    """

    def __init__(self, split: Split, size: int, device: torch.device, share: Share) -> None:
        self.size, self.device, self.share = size, device, share
        self.separate = isinstance(split.inputs, Mapping)
        self.targets: Targets = {task: target.to(device) for task, target in split.targets.items()}
        self.incomplete = incomplete(split)

    @property
    def steps(self) -> int:
        """Steps per epoch; a last batch of uneven size counts only where it is all there is."""
        return max(1, max(len(target) for target in self.targets.values()) // self.size)

    def orders(self, seed: int, epoch: int, limit: int | None = None) -> Orders:
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
            mine = self.share.of(order[: steps * size].view(steps, size)).to(self.device)
            orders.update(dict.fromkeys(group, mine))
        return orders


class TensorBatches(Ordered):
    """Tensors that already lie on the device: no Python per sample, no worker processes."""

    def __init__(self, split: Split, size: int, device: torch.device, share: Share) -> None:
        super().__init__(split, size, device, share)
        inputs: Any = split.inputs
        self.inputs: Tensor | ByTask = moved(ByTask(inputs) if self.separate else inputs, device)

    def shuffled(self, seed: int, epoch: int, limit: int | None = None) -> Iterator[Batch]:
        """One epoch of training batches."""
        orders = self.orders(seed, epoch, limit)
        for step in range(len(next(iter(orders.values())))):
            yield self.select({task: order[step] for task, order in orders.items()})

    def in_order(self, limit: int | None = None) -> Iterator[Batch]:
        """Every example once."""
        longest = max(len(target) for target in self.targets.values())
        for step, start in enumerate(range(0, longest, self.size)):
            if limit is not None and step >= limit:
                return
            present = {task for task, target in self.targets.items() if start < len(target)}
            window = slice(start, start + self.size)
            inputs = self.inputs
            taken: Inputs
            if isinstance(inputs, Tensor):
                taken = inputs[window]
            else:
                taken = ByTask({task: own[window] for task, own in inputs.items() if task in present})
            yield Batch(taken, {task: self.targets[task][window] for task in self.targets if task in present})

    def select(self, chosen: dict[str, Tensor]) -> Batch:
        """The batch of the rows `chosen` names for each task."""
        targets = {task: self.targets[task].index_select(0, rows) for task, rows in chosen.items()}
        if isinstance(self.inputs, Tensor):
            return Batch(self.inputs.index_select(0, next(iter(chosen.values()))), targets)
        own = {task: self.inputs[task].index_select(0, rows) for task, rows in chosen.items()}
        return Batch(ByTask(own), targets)


def prepared(batch: Batch, benchmark: Benchmark) -> Inputs:
    """What the network takes."""
    if isinstance(batch.inputs, ByTask):
        return ByTask({task: benchmark.prepare(own) for task, own in batch.inputs.items()})
    return benchmark.prepare(batch.inputs)


def moved(inputs: Inputs, device: torch.device) -> Inputs:
    """Inputs on the device, whatever they are made of."""
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return type(inputs)({name: moved(own, device) for name, own in inputs.items()})  # type: ignore[call-arg]
    if isinstance(inputs, tuple | list):
        return type(inputs)(moved(own, device) for own in inputs)
    return inputs


def incomplete(split: Split) -> frozenset[str]:
    """Tasks without a label for some examples of the split."""
    return frozenset(task for task, target in split.targets.items() if labelled(target) is not None)
