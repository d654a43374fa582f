"""MoDo: weights of MGDA, moved by one small step at a time, from independent batches.

Chen et al., "Three-Way Trade-Off in Multi-Objective Learning", NeurIPS 2023, https://arxiv.org/abs/2305.20057,
Algorithm 1. With A the product of the gradients of two independent batches:
    lambda <- project onto the simplex (lambda - gamma (A lambda + rho lambda)),   d = sum_i lambda_i g_i
Give the losses of the second batch as `validation_losses=` to `backward` (a dict, or a function that computes them).
Without, A is the Gram matrix of the one batch, whose diagonal is too large. Here d is of the batch that is trained; the
paper takes a third one, or the mean of the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.engine.observation import Observation
from excessmtl.engine.plan import Probe
from excessmtl.methods.base import Decision, Heads, Rule, State, method
from excessmtl.solvers.simplex import project


@method("modo")
@dataclass(frozen=True)
class MoDo(Rule):
    """The weights of MGDA in small steps, from independent batches."""

    probe: ClassVar[Probe] = Probe.SHARED
    heads: ClassVar[Heads] = "unweighted"
    uses: ClassVar[frozenset[str]] = frozenset({"validation_losses"})

    step_size: float = 1e-3
    """gamma"""
    rho: float = 0.1
    """Keeps the weights apart from the corners."""

    def __post_init__(self) -> None:
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")
        if not 0 <= self.rho < float("inf"):
            raise ValueError(f"rho must be at least 0 and finite, found {self.rho}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """lambda = 1/m."""
        return {"simplex": torch.full((tasks,), 1 / tasks)}

    def lookahead(self, state: State) -> Tensor:
        """Nothing: the second batch is looked at where the model stands."""
        return torch.zeros_like(state["simplex"])

    def update(self, state: State, seen: Observation) -> Decision:
        """One projected gradient step; the tasks that took part share out among themselves what they had."""
        products = seen.gram if seen.cross is None else seen.cross
        products = torch.where(seen.ok[:, None] & seen.ok, products, 0)
        before = state["simplex"]
        mine = torch.where(seen.ok, before, 0)
        had = mine.sum()
        whole = torch.where(had > 0, had, 1)
        moved = mine - self.step_size * (products @ mine + self.rho * mine)
        weights = torch.where(seen.ok, had * project(moved / whole, seen.ok), before)
        return Decision(weights, {"simplex": weights})
