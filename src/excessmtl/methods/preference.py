"""A preference among the tasks, an option that COSMOS and PBI share: losses in a ratio of the user's choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from excessmtl.methods.base import Rule, State, constant, per_task
from excessmtl.methods.loss_values import latest, latest_state
from excessmtl.methods.observation import Observation


@dataclass(frozen=True)
class Preferring(Rule):
    """A rule that compares the vector of losses with a preference, as `Probed` is one that chooses where it looks."""

    simplex: ClassVar[bool] = False

    preference: Mapping[str, float] | Sequence[float] | None = field(default=None, kw_only=True)
    """r, by name or in task order; None: equal."""

    def bind(self, tasks: Sequence[str]) -> Self:
        """Preferences in task order, with the sum one."""
        shares = per_task("preference", self.preference, tasks, 1.0)
        if not all(0 < share < float("inf") for share in shares):
            raise ValueError(f"preference must be positive and finite, found {shares}")
        return replace(self, preference=tuple(share / sum(shares) for share in shares))

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """The latest loss of every task."""
        return latest_state(tasks)

    def compared(self, state: State, seen: Observation) -> tuple[Tensor, Tensor, Tensor, State]:
        """(r, losses over the largest, the largest, state), zero for tasks that have had no loss yet.

        Losses are divided by the largest because squares of large ones overflow.
        """
        assert isinstance(self.preference, tuple)
        losses, known, state = latest(state, seen)
        r = torch.where(known, constant(self.preference, losses), 0)
        losses = torch.where(known, losses, 0)
        largest = losses.max().clamp(min=torch.finfo(losses.dtype).tiny)
        return r, losses / largest, largest, state
