"""Splits from any `Dataset` or `DataLoader`: inputs are read while training, targets once at the start."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from excessmtl.lab.data.base import Split, Targets

_FORM = "(inputs, {task: target})"


def split_of(source: Dataset[Any] | DataLoader[Any]) -> Split:
    """A split whose items, or batches, are pairs (inputs, {task: target}).

    All targets are read once, here: label noise, normalised errors and missing labels need them. A `Dataset` that
    has them in memory may offer them as a mapping `targets`, task -> tensor; its items are then read for their
    inputs alone. Items must have the same target each time they are read: random augmentation belongs to the inputs.

    A `DataLoader` is used as it is, with its own order, batch size and targets; label noise and methods that hold
    out training data need the `Dataset` itself.
    """
    if isinstance(source, DataLoader):
        return Split(source, _joined(source, torch.cat))
    given = getattr(source, "targets", None)
    if isinstance(given, Mapping) and given and all(isinstance(target, Tensor) for target in given.values()):
        return Split(source, dict(given))
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise ValueError(
            f"{type(source).__name__} has no length or no items by number; wrap a dataset that only iterates in a "
            "DataLoader"
        )
    return Split(source, _joined((source[index] for index in range(len(source))), torch.stack))


def _joined(items: Iterable[Any], join: Any) -> Targets:
    """The targets of all items, task by task."""
    found: dict[str, list[Tensor]] = {}
    for item in items:
        if not (isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[1], Mapping)):
            raise ValueError(f"items of a dataset must be pairs {_FORM}, found {type(item).__name__}")
        for task, target in item[1].items():
            found.setdefault(task, []).append(torch.as_tensor(target))
    if not found:
        raise ValueError(f"the dataset has no items; it must have at least one pair {_FORM}")
    lengths = {task: len(own) for task, own in found.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"every item must have a target for every task (NaN where it is missing), found {lengths}")
    return {task: join(own) for task, own in found.items()}
