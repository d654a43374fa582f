"""What rules that look at loss values share: positive losses, the latest loss of every task."""

from collections.abc import Sequence

import torch
from torch import Tensor

from excessmtl.methods.observation import Observation

State = dict[str, Tensor]
SMALLEST = 1e-8
"""Losses count as at least this where one is divided by, or its logarithm is taken."""


def positive(losses: Tensor) -> Tensor:
    """The losses, none below `SMALLEST`."""
    return losses.clamp(min=SMALLEST)


def latest_state(tasks: int) -> State:
    """Before the first step no loss is known."""
    return {"latest": torch.zeros(tasks), "known": torch.zeros(tasks, dtype=torch.bool)}


def latest(state: State, seen: Observation) -> tuple[Tensor, Tensor, State]:
    """(losses, known, state): the latest positive loss of every task, and which tasks have had one.

    A rule that compares losses with each other needs those of all tasks. Where batches carry labels of one task at a
    time, a comparison among the tasks of the batch would give every task the same weight.
    """
    kept = torch.where(seen.ok, seen.losses, state["latest"])
    known = state["known"] | seen.ok
    return positive(kept), known, {"latest": kept, "known": known}


def softmax_over(known: Tensor, scores: Tensor) -> Tensor:
    """The softmax of the scores of the known tasks, zero for the others, and where none is known."""
    shares = torch.where(known, scores, torch.finfo(scores.dtype).min).softmax(0)
    return torch.where(known, shares, 0)


def check_epochs(names: Sequence[str], values: Sequence[object], smallest: Sequence[int]) -> None:
    """A ValueError for a count that is not a whole number of at least its smallest value."""
    for name, value, least in zip(names, values, smallest, strict=True):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number, at least {least}, found {value!r}")
