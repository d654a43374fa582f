"""PCD: one task is followed, and every other one makes at least a little progress.

Varam & Alhajri, "Not All Objectives Are Born Equal: Priority-Constrained Descent", TMLR 2026,
https://arxiv.org/abs/2606.29521. With u_i = g_i / sqrt(v_i + 1e-8), v_i the bias-corrected moving average of |g_i|^2,
and p the primary task:
    d = argmin |d - u_p|^2 / 2  subject to  u_j . d >= tau |u_j|^2 for all j != p,   rescaled to the length of g_p
The dual problem is one over x >= 0: d = u_p + sum_j x_j u_j. Where the constraints cannot all hold they are dropped,
and d = g_p. The length of d is that of g_p, so `scale="sum"` and `"mean"` leave it. A batch without the primary task
leaves the other tasks the weights they had.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.conditioning import normalized
from excessmtl.solvers.nonnegative import nonnegative

_EPS = 1e-8
_VIOLATED = 1e-3
"""Of a constraint, in units of what it asks for and of unit vectors."""


@method("pcd")
@dataclass(frozen=True)
class PCD(Probed):
    """A primary task is followed, every other makes at least a little progress."""

    heads: ClassVar[Heads] = "unweighted"
    places: ClassVar[frozenset[str]] = frozenset({"primary"})
    simplex: ClassVar[bool] = False

    primary: str | int | None = None
    """The task that is followed: its name, or its place among the tasks; None: the first."""
    tau: float = 0.02
    """The share of the progress along its own gradient that every other task is to make."""
    decay: float = 0.999
    """Of the moving averages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tau <= 1:
            raise ValueError(f"tau must be between 0 and 1, found {self.tau}")
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be at least 0 and below 1, found {self.decay}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """The place of the primary task."""
        wanted = 0 if self.primary is None else self.primary
        place = tasks.index(wanted) if wanted in tasks else wanted
        if not isinstance(place, int) or not 0 <= place < len(tasks):
            raise ValueError(f"primary must be one of the tasks {list(tasks)}, found {self.primary!r}")
        return replace(self, primary=place)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """Moving averages, how many steps they hold, and the weights."""
        zeros = {name: torch.zeros(tasks) for name in ("squares", "steps")}
        return {**zeros, "weights": self.prior(tasks)}

    def prior(self, tasks: int) -> Tensor:
        """The primary task alone."""
        alone = torch.zeros(tasks)
        alone[self.primary if isinstance(self.primary, int) else 0] = 1
        return alone

    def update(self, state: State, seen: Observation) -> Decision:
        """d in terms of unit gradients, rescaled to the length of g_p."""
        assert isinstance(self.primary, int)
        cosines, lengths, active = normalized(seen.gram, seen.ok)
        average, steps = self._averages(state, seen)
        noise = (average / (1 - self.decay ** steps.clamp(min=1)) + _EPS).sqrt()
        units = torch.where(active, lengths / noise, 0)  # |u_i|
        y = self._combination(cosines, units, active)
        length, leading = (y @ cosines @ y).clamp(min=0).sqrt(), units[self.primary]
        # Below the rounding of the products d is zero.
        scale = torch.where(length > 1e-3 * leading, lengths[self.primary] / torch.where(length > 0, length, 1), 0)
        weights = torch.where(active, scale * y / lengths, 0).to(seen.gram.dtype)
        weights = torch.where(seen.ok[self.primary] & seen.ok, weights, state["weights"])
        return Decision(weights, {"squares": average, "steps": steps, "weights": weights})

    def _averages(self, state: State, seen: Observation) -> tuple[Tensor, Tensor]:
        """Moving averages of |g_i|^2, not yet corrected for their zero start, and how many steps they hold."""
        squares = torch.where(seen.ok, seen.gram.diagonal().clamp(min=0), 0)
        average = self.decay * state["squares"] + (1 - self.decay) * squares
        return torch.where(seen.ok, average, state["squares"]), state["steps"] + seen.ok

    def _combination(self, cosines: Tensor, units: Tensor, active: Tensor) -> Tensor:
        """y with d = sum_i y_i g_i / |g_i|, where y_p = |u_p| and y_j = x_j |u_j| for the others.

        The dual problem is min y'Cy/2 + y.(C_p |u_p| - tau |u|). Where the constraints cannot all hold, y_p is left.
        """
        assert isinstance(self.primary, int)
        leads = torch.arange(len(active), device=active.device) == self.primary
        others, leading = active & ~leads, units[self.primary]
        linear = torch.where(others, cosines[self.primary] * leading - self.tau * units, 0)
        inside = torch.where(others[:, None] & others, cosines, 0)
        inside = inside + torch.diag(1 - inside.diagonal())
        y = nonnegative(inside, linear[None], others).squeeze(0)
        slack = torch.where(others, inside @ y + linear, 0)
        hold = (slack >= -_VIOLATED * (leading + self.tau * units)).all()
        return torch.where(leads, leading, torch.where(hold, y, 0))
