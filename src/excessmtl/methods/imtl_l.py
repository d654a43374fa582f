"""IMTL-L: scales the losses so that they all come to the same value.

Liu et al., "Towards Impartial Multi-task Learning", ICLR 2021, https://openreview.net/forum?id=IMPnRXEWpvr.
Task i trains e^{s_i} l_i - s_i, whose optimum in s has e^{s_i} l_i = 1. s is moved by an Adam step of its own (rate
0.025, no weight decay) on the closed-form gradient e^{s_i} l_i - 1. The total weight is learned, so `scale="sum"` and
`"mean"` leave it as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.adam import adam_state, adam_step

_LIMIT = 30.0
"""Of |s|: a loss that stays at zero would drive the scale beyond any number."""


@method("imtl_l")
@dataclass(frozen=True)
class IMTLL(Rule):
    """Learned scales that bring all losses to one."""

    simplex: ClassVar[bool] = False

    step_size: float = 0.025
    """Of Adam on the learned scales."""

    def __post_init__(self) -> None:
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """s = 0 for every task, and its optimiser."""
        return scales_state(tasks)

    def prior(self, tasks: int) -> Tensor:
        """At s = 0."""
        return torch.ones(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """Weights e^{s_i} at the present s, then a step on s."""
        scales, state = step_scales(state, seen, self.step_size)
        return Decision(scales, state)


def scales_state(tasks: int) -> State:
    """s = 0, with its optimiser's state."""
    return {"log_scales": torch.zeros(tasks), **adam_state(tasks)}


def step_scales(state: State, seen: Observation, step_size: float) -> tuple[Tensor, State]:
    """e^{s} before the step, and the state after it."""
    scales = state["log_scales"].exp()
    moved, optimiser = adam_step(state["log_scales"], scales * seen.losses - 1, state, seen.ok, step_size)
    return scales, {"log_scales": moved.clamp(-_LIMIT, _LIMIT), **optimiser}
