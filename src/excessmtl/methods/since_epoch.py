"""Weights from losses relative to those of an early epoch, for IGB and STCH."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, State
from excessmtl.methods.loss_values import latest, latest_state, positive, softmax_over
from excessmtl.methods.observation import Observation


@dataclass(frozen=True)
class SinceEpoch:
    """Compares losses with their means in one epoch. Where `end_epoch` is never called, `window` steps are an epoch."""

    epoch: int
    """Counted from 0."""
    window: int

    def init(self, tasks: int) -> State:
        """The latest losses, and the sums of the epoch to compare with."""
        sums: State = {name: torch.zeros(tasks) for name in ("reference_total", "reference_count")}
        counters: State = {
            "epoch": torch.zeros(()),
            "steps": torch.zeros(()),
            "told": torch.zeros((), dtype=torch.bool),
        }
        return {**latest_state(tasks), **sums, **counters}

    def decide(self, state: State, seen: Observation, scores: Callable[[Tensor], Tensor]) -> Decision:
        """w_i = m softmax(scores(l / mean of the epoch))_i / l_i, and 1 / l_i until the epoch is over.

        A task without a loss in that epoch counts as one that stands where it did.
        """
        means, over, counted = self._means(state, seen)
        losses, known, kept = latest(state, seen)
        ratios = torch.where(means > 0, losses / positive(means), 1)
        shares = known.sum() * softmax_over(known, scores(ratios))
        return Decision(torch.where(over, shares, known.to(shares)) / losses, {**kept, **counted})

    def end_epoch(self, state: State) -> State:
        """The caller counts epochs from now on; what windows have counted before is forgotten.

        The mean of the first window may stay: it is one of the first epoch (number 0).
        """
        told, first = state["told"], state["epoch"] == 0
        keep = told | first | (self.epoch == 0)
        kept = {name: torch.where(keep, state[name], 0) for name in ("reference_total", "reference_count")}
        kept["epoch"] = torch.where(told, state["epoch"], 0) + 1
        return {**state, **kept, "steps": torch.zeros_like(state["steps"]), "told": torch.ones_like(told)}

    def _means(self, state: State, seen: Observation) -> tuple[Tensor, Tensor, State]:
        """The mean loss of every task in the epoch (0: none), whether it is over, and the sums after this step."""
        rolls = ~state["told"] & (state["steps"] >= self.window)
        number = state["epoch"] + rolls
        adds = seen.ok & (number == self.epoch)
        total = torch.where(adds, state["reference_total"] + seen.losses, state["reference_total"])
        count = state["reference_count"] + adds
        steps = torch.where(rolls, 0, state["steps"]) + 1
        sums = {"reference_total": total, "reference_count": count}
        return (
            total / count.clamp(min=1),
            number > self.epoch,
            {**sums, "epoch": number, "steps": steps, "told": state["told"]},
        )
