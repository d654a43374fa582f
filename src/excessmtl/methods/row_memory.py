"""Rules that remember a vector per task, as long as all shared parameters side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor

from excessmtl.methods.observation import Observation


def rows_state(tasks: int, shared: Sequence[torch.Size]) -> Tensor:
    """[m, n] zeros, frozen parameters included."""
    return torch.zeros(tasks, sum(shape.numel() for shape in shared))


def trainable(kept: Tensor, seen: Observation) -> Tensor:
    """The columns of what is remembered that belong to the parameters this step has gradients for."""
    assert seen.matrix is not None
    if kept.shape == seen.matrix.shape:
        return kept
    return torch.cat([kept[:, start : start + rows.shape[1]] for start, rows in _places(seen)], 1)


def moved(kept: Tensor, towards: Tensor, rates: Tensor, seen: Observation) -> Tensor:
    """[m, columns] a moving average: by `rates` [m] of the way, for the tasks that took part. The others stay."""
    return torch.lerp(trainable(kept, seen), towards, torch.where(seen.ok, rates, 0)[:, None])


def updated(kept: Tensor, new: Tensor, seen: Observation) -> Tensor:
    """What is remembered after the step: `new` in these columns."""
    if kept.shape == new.shape:
        return new
    filled, done = kept.clone(), 0
    for start, rows in _places(seen):
        filled[:, start : start + rows.shape[1]] = new[:, done : done + rows.shape[1]]
        done += rows.shape[1]
    return filled


def _places(seen: Observation) -> list[tuple[int, Tensor]]:
    return list(zip(seen.offsets, seen.rows, strict=True))
