"""Batches cut from tensors that already lie on the device: no Python per sample, no worker processes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from excessmtl.benchmarks.base import Benchmark, Split, Targets
from excessmtl.benchmarks.tasks import labelled

Inputs = Tensor | dict[str, Tensor]
Orders = dict[str, Tensor]
"""Task -> [steps, batch size] the rows of every step of an epoch."""


@dataclass(frozen=True)
class Batch:
    """Stored inputs and targets of one step; a task may be missing from a last, uneven evaluation batch."""

    inputs: Inputs
    targets: Targets


class Batches:
    """A split on the device.

    Tasks that share their inputs are drawn together. Tasks with inputs of their own are shuffled each for itself; an
    epoch is as long as the longest of them, and shorter ones start again (in a new order) until it is over.
    """

    def __init__(self, split: Split, batch_size: int, device: torch.device) -> None:
        self.size = batch_size
        self.separate = isinstance(split.inputs, Mapping)
        self.inputs: Inputs = _to(split.inputs, device)
        self.targets: Targets = {task: target.to(device) for task, target in split.targets.items()}
        self.device = device
        self.incomplete = frozenset(task for task, target in split.targets.items() if labelled(target) is not None)
        """Tasks without a label for some examples."""

    @property
    def steps(self) -> int:
        """Steps per epoch; a last batch of uneven size counts only where it is all there is."""
        return max(1, max(len(target) for target in self.targets.values()) // self.size)

    def shuffled(self, seed: int, epoch: int, limit: int | None = None) -> Iterator[Batch]:
        """One epoch of training batches, in an order given by seed and epoch alone: a resumed run sees the same."""
        orders = self.orders(seed, epoch, limit)
        for step in range(len(next(iter(orders.values())))):
            yield self.select({task: order[step] for task, order in orders.items()})

    def orders(self, seed: int, epoch: int, limit: int | None = None) -> Orders:
        """Which rows make up the batches of an epoch."""
        steps = self.steps if limit is None else min(limit, self.steps)
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        lengths = {task: len(target) for task, target in self.targets.items()}
        groups = [[task] for task in lengths] if self.separate else [list(lengths)]
        orders = {}
        for group in groups:
            length = lengths[group[0]]
            size = min(self.size, length)
            rounds = -(-steps * size // length)
            order = torch.cat([torch.randperm(length, generator=generator) for _ in range(rounds)])
            orders.update(dict.fromkeys(group, order[: steps * size].view(steps, size).to(self.device)))
        return orders

    def in_order(self, limit: int | None = None) -> Iterator[Batch]:
        """Every example once, for evaluation."""
        longest = max(len(target) for target in self.targets.values())
        for step, start in enumerate(range(0, longest, self.size)):
            if limit is not None and step >= limit:
                return
            present = {task for task, target in self.targets.items() if start < len(target)}
            window = slice(start, start + self.size)
            inputs = self.inputs
            taken = (
                inputs[window] if isinstance(inputs, Tensor) else {t: inputs[t][window] for t in inputs if t in present}
            )
            yield Batch(taken, {task: self.targets[task][window] for task in self.targets if task in present})

    def select(self, chosen: dict[str, Tensor]) -> Batch:
        """The batch of the rows `chosen` names for each task."""
        targets = {task: self.targets[task].index_select(0, rows) for task, rows in chosen.items()}
        if isinstance(self.inputs, Tensor):
            return Batch(self.inputs.index_select(0, next(iter(chosen.values()))), targets)
        return Batch({task: self.inputs[task].index_select(0, rows) for task, rows in chosen.items()}, targets)


def prepared(batch: Batch, benchmark: Benchmark) -> Inputs:
    """What the network takes."""
    if isinstance(batch.inputs, Tensor):
        return benchmark.prepare(batch.inputs)
    return {task: benchmark.prepare(own) for task, own in batch.inputs.items()}


def split_off(split: Split, share: float, seed: int) -> tuple[Split, Split]:
    """(the rest, a random share) of a split; tasks with inputs of their own are divided each for itself."""
    generator = torch.Generator().manual_seed(seed)
    parts: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    inputs: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    whole: list[Tensor] = []
    order = None
    for task, target in split.targets.items():
        if order is None or isinstance(split.inputs, Mapping):
            order = torch.randperm(len(target), generator=generator)
        count = max(1, round(share * len(target)))
        for index, rows in enumerate((order[count:], order[:count])):
            parts[index][task] = target[rows]
            if isinstance(split.inputs, Mapping):
                inputs[index][task] = split.inputs[task][rows]
            elif len(whole) < 2:
                whole.append(split.inputs[rows])
    if whole:
        return Split(whole[0], parts[0]), Split(whole[1], parts[1])
    return Split(inputs[0], parts[0]), Split(inputs[1], parts[1])


def _to(inputs: Inputs, device: torch.device) -> Inputs:
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    return {task: own.to(device) for task, own in inputs.items()}
