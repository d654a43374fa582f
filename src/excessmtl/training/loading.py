"""Batches from any source: tensors on the device, a `Dataset` that is read while training, or a `DataLoader`."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset

from excessmtl.benchmarks.base import Split
from excessmtl.training.batches import Batch, Batches, Ordered, Share, TensorBatches, incomplete, moved

__all__ = ["DatasetBatches", "LoaderBatches", "make_batches"]


def make_batches(
    split: Split, size: int, device: torch.device, share: Share | None = None, workers: int = 0
) -> Batches:
    """The split in batches of `size` examples, of which this process takes its share when training."""
    share = share or Share()
    if isinstance(split.inputs, DataLoader):
        return LoaderBatches(split, device)
    if isinstance(split.inputs, Tensor | Mapping):
        return TensorBatches(split, size, device, share)
    return DatasetBatches(split, size, device, share, workers)


class _InputsOf(Dataset[Any]):
    """The inputs of a dataset whose items are (inputs, targets)."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index][0]


class DatasetBatches(Ordered):
    """Inputs read from a `Dataset` when they are needed, targets in memory."""

    def __init__(self, split: Split, size: int, device: torch.device, share: Share, workers: int) -> None:
        super().__init__(split, size, device, share)
        self.dataset, self.workers = _InputsOf(split.inputs), workers

    def shuffled(self, seed: int, epoch: int, limit: int | None = None) -> Iterator[Batch]:
        """One epoch of training batches."""
        return self._read(next(iter(self.orders(seed, epoch, limit).values())).unbind())

    def in_order(self, limit: int | None = None) -> Iterator[Batch]:
        """Every example once."""
        rows = torch.arange(len(next(iter(self.targets.values()))), device=self.device)
        return self._read(torch.split(rows, self.size)[:limit])

    def _read(self, rows: tuple[Tensor, ...]) -> Iterator[Batch]:
        # A generator of its own: the loader would otherwise draw a seed from the run's random numbers.
        loader = DataLoader(
            self.dataset,
            batch_sampler=[own.tolist() for own in rows],
            num_workers=self.workers,
            generator=Generator().manual_seed(0),
        )
        for own, inputs in zip(rows, loader, strict=True):
            targets = {task: target.index_select(0, own) for task, target in self.targets.items()}
            yield Batch(moved(inputs, self.device), targets)


class LoaderBatches:
    """A `DataLoader` as it is: its own order, batch size and workers."""

    def __init__(self, split: Split, device: torch.device) -> None:
        assert isinstance(split.inputs, DataLoader)
        self.loader, self.device = split.inputs, device
        self.incomplete = incomplete(split)

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
        for step, (inputs, targets) in enumerate(self.loader):
            if limit is not None and step >= limit:
                return
            yield Batch(moved(inputs, self.device), {task: own.to(self.device) for task, own in targets.items()})
