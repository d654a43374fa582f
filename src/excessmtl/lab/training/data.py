"""The data of a run: training batches with label noise, clean data held out, and the splits for evaluation."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.noise import Noise
from excessmtl.lab.data.noise import apply as with_noise
from excessmtl.lab.runs.config import Resolved
from excessmtl.lab.training.batches import Batches, Share, make_batches

_CLEAN_SHARE = 0.2
_EVALUATED_AT_ONCE = 4
"""Batches; without gradients there is room for them."""


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
