"""What rules that look at loss values share: positive losses, the latest loss of every task, epochs to compare with."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from excessmtl.engine.observation import Observation
from excessmtl.methods.base import per_task

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


def reference_state(tasks: int) -> State:
    """Before the first epoch."""
    sums: State = {name: torch.zeros(tasks) for name in ("reference_total", "reference_count")}
    return {**sums, "epoch": torch.zeros(()), "steps": torch.zeros(()), "told": torch.zeros((), dtype=torch.bool)}


def reference(state: State, seen: Observation, epoch: int, window: int) -> tuple[Tensor, Tensor, State]:
    """(means, over, state): the mean loss of every task in this epoch (counted from 0), and whether it is over.

    A task without a loss in that epoch has the mean 0. Where `end_epoch` is never called, `window` steps are an epoch.
    """
    rolls = ~state["told"] & (state["steps"] >= window)
    number = state["epoch"] + rolls
    adds = seen.ok & (number == epoch)
    total = torch.where(adds, state["reference_total"] + seen.losses, state["reference_total"])
    count = state["reference_count"] + adds
    means = total / count.clamp(min=1)
    steps = torch.where(rolls, 0, state["steps"]) + 1
    new = {"reference_total": total, "reference_count": count, "epoch": number, "steps": steps, "told": state["told"]}
    return means, number > epoch, new


def reference_end_epoch(state: State, epoch: int) -> State:
    """The caller counts epochs from now on; what windows have counted before is forgotten.

    The mean of the first window may stay: it is one of the first epoch (number 0).
    """
    told, first = state["told"], state["epoch"] == 0
    keep = told | first | (epoch == 0)
    kept = {name: torch.where(keep, state[name], 0) for name in ("reference_total", "reference_count")}
    kept["epoch"] = torch.where(told, state["epoch"], 0) + 1
    return {**state, **kept, "steps": torch.zeros_like(state["steps"]), "told": torch.ones_like(told)}


def preferences(given: Mapping[str, float] | Sequence[float] | None, tasks: Sequence[str]) -> tuple[float, ...]:
    """Positive preferences in task order that sum to one."""
    found = per_task("preference", given, tasks, 1.0)
    if not all(0 < one < float("inf") for one in found):
        raise ValueError(f"preference must be positive and finite, found {found}")
    return tuple(one / sum(found) for one in found)


def check_epochs(names: Sequence[str], values: Sequence[object], smallest: Sequence[int]) -> None:
    """A ValueError for a count that is not a whole number of at least its smallest value."""
    for name, value, least in zip(names, values, smallest, strict=True):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number, at least {least}, found {value!r}")
