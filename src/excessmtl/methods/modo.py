"""MoDo: weights of MGDA, moved by one small step at a time, from independent batches.

Chen et al., "Three-Way Trade-Off in Multi-Objective Learning", NeurIPS 2023, https://arxiv.org/abs/2305.20057,
Algorithm 1. With A the product of the gradients of two independent batches by the shared parameters:
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

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Heads, Rule, State, method
from excessmtl.methods.carried_weights import among_present, carried, carried_state
from excessmtl.methods.observation import Observation
from excessmtl.methods.second_batch import products
from excessmtl.solvers.simplex import project


@method("modo")
@dataclass(frozen=True)
class MoDo(Rule):
    """The weights of MGDA in small steps, from independent batches."""

    probe: ClassVar[Probe] = Probe.SHARED
    heads: ClassVar[Heads] = "unweighted"
    uses: ClassVar[frozenset[str]] = frozenset({"validation_losses"})
    validates_heads: ClassVar[bool] = False

    step_size: float = 1e-3
    """gamma, the length of a step of the weights."""
    rho: float = 0.1
    """Keeps the weights apart from the corners."""

    def __post_init__(self) -> None:
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")
        if not 0 <= self.rho < float("inf"):
            raise ValueError(f"rho must be at least 0 and finite, found {self.rho}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """lambda = 1/m."""
        return carried_state(tasks)

    def lookahead(self, state: State) -> Tensor:
        """Nothing: the second batch is looked at where the model stands."""
        return torch.zeros_like(state["simplex"])

    def update(self, state: State, seen: Observation) -> Decision:
        """One projected gradient step."""
        before = among_present(state, seen.ok)
        slope = products(seen) @ before + self.rho * before
        weights = carried(state, seen.ok, project(before - self.step_size * slope, seen.ok))
        return Decision(weights, {"simplex": weights})
