"""Dynamic weight average: more weight on tasks whose loss falls more slowly from epoch to epoch.

Liu et al., CVPR 2019, https://arxiv.org/abs/1803.10704:
    r_i = L_i(e-1) / L_i(e-2) from epoch means of the losses,    w = m softmax(r / T),  T = 2
and w = 1 in the first two epochs. Weights sum to m (to 1 with `scale="mean"`). Call `balancer.end_epoch()` after every
epoch; if it is never called, every `window` steps count as one (also in the first epoch of a loop that does call it:
nobody has told yet).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.observation import Observation


@method("dwa")
@dataclass(frozen=True)
class DWA(Rule):
    """More weight on tasks whose loss falls slowly."""

    simplex: ClassVar[bool] = False

    temperature: float = 2.0
    """The larger, the more equal the weights."""
    window: int = 100
    """Steps that count as an epoch where `end_epoch` is never called."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be positive, found {self.temperature}")
        if not isinstance(self.window, int) or self.window < 1:
            raise ValueError(f"window must be a whole number of steps, at least 1, found {self.window!r}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """Sums of this epoch and window, means of the two before (zero while there is none), how epochs are counted."""
        names = ("total", "count", "window_total", "window_count", "last", "before_last")
        zeros = {name: torch.zeros(tasks) for name in names}
        return {**zeros, "steps": torch.zeros(()), "told": torch.zeros((), dtype=torch.bool)}

    def prior(self, tasks: int) -> Tensor:
        """One each."""
        return torch.ones(tasks)

    def total(self, tasks: int) -> float:
        """The number of tasks."""
        return float(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """Weights from the two epochs before; the losses of this step join the present one."""
        over = ~state["told"] & (state["steps"] >= self.window)
        rolled = _close(state, "window_")
        state = {name: torch.where(over, rolled.get(name, kept), kept) for name, kept in state.items()}
        weights = self._weights(state["last"], state["before_last"])
        sums = {name: state[name] + torch.where(seen.ok, seen.losses, 0) for name in ("total", "window_total")}
        counts = {name: state[name] + seen.ok for name in ("count", "window_count")}
        return Decision(weights, {**state, **sums, **counts, "steps": state["steps"] + 1})

    def _weights(self, last: Tensor, before: Tensor) -> Tensor:
        # A task without two epochs behind it counts as one whose loss stands still.
        ratio = torch.where((last > 0) & (before > 0), last / before.clamp(min=torch.finfo(before.dtype).tiny), 1.0)
        return len(last) * (ratio / self.temperature).softmax(0)

    def end_epoch(self, state: State) -> State:
        """Close the epoch; from now on only the caller does, and what windows have left behind is forgotten."""
        told = state["told"]
        before = {name: torch.where(told, state[name], 0) for name in ("last", "before_last")}
        return {**state, **_close({**state, **before}, ""), "told": torch.ones_like(told)}


def _close(state: State, period: str) -> State:
    """The entries that change when a period is over: its mean joins the history, its sums start again."""
    total, count = state[period + "total"], state[period + "count"]
    some = count > 0
    return {
        period + "total": torch.zeros_like(total),
        period + "count": torch.zeros_like(count),
        "last": torch.where(some, total / count.clamp(min=1), state["last"]),
        "before_last": torch.where(some, state["last"], state["before_last"]),
        "steps": torch.zeros_like(state["steps"]),
    }
