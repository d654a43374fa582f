"""A part of the training data set aside."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from excessmtl.benchmarks.base import Split


def split_off(split: Split, share: float, seed: int) -> tuple[Split, Split]:
    """(the rest, a random share) of a split; tasks with inputs of their own are divided each for itself."""
    if isinstance(split.inputs, DataLoader):
        raise ValueError("this method holds out a part of the training data; pass the Dataset, not its DataLoader")
    generator = torch.Generator().manual_seed(seed)
    orders: dict[str, Tensor] = {}
    for task, target in split.targets.items():
        if not orders or isinstance(split.inputs, Mapping):
            order = torch.randperm(len(target), generator=generator)
        orders[task] = order
    counts = {task: max(1, round(share * len(order))) for task, order in orders.items()}
    kept = {task: order[counts[task] :] for task, order in orders.items()}
    taken = {task: order[: counts[task]] for task, order in orders.items()}
    return _rows(split, kept), _rows(split, taken)


def _rows(split: Split, rows: Mapping[str, Tensor]) -> Split:
    """The rows of a split that are named for each task."""
    targets = {task: target[rows[task]] for task, target in split.targets.items()}
    inputs: Any = split.inputs
    first = next(iter(rows.values()))
    if isinstance(inputs, Mapping):
        return Split({task: own[rows[task]] for task, own in inputs.items()}, targets)
    return Split(inputs[first] if isinstance(inputs, Tensor) else Subset(inputs, first.tolist()), targets)
