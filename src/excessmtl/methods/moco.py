"""MoCo: MGDA on gradients that are tracked over the steps, so that the noise of a batch does not bias the weights.

Fernando et al., "Mitigating Gradient Bias in Multi-objective Learning", ICLR 2023,
https://openreview.net/forum?id=dLAYGdKTi2, Algorithm 1. In step t, with y_i tracking the gradient of task i:
    y_i <- y_i - b_t (y_i - g_i)
    lambda <- project onto the simplex (lambda - c_t (Y Y' + rho) lambda),   d = sum_i lambda_i y_i
b_t = b t^-s, c_t = c t^-s. The shared parameters take the tracked gradients, not those of the batch. Y has as many
numbers per task as there are shared parameters. Others take a softmax for the projection, which pulls lambda to 1/m in
every step, and normalise the gradients by their loss. Heads are trained with their own gradient. `protect` and `every`
are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Heads, Rule, State, method
from excessmtl.methods.carried_weights import among_present, carried, carried_state
from excessmtl.methods.observation import Observation
from excessmtl.methods.row_memory import moved, rows_state, updated
from excessmtl.solvers.simplex import project


@method("moco")
@dataclass(frozen=True)
class MoCo(Rule):
    """MGDA on gradients tracked over the steps."""

    probe: ClassVar[Probe] = Probe.SHARED
    heads: ClassVar[Heads] = "unweighted"
    directs: ClassVar[bool] = True

    tracking: float = 0.5
    """b, the share of the newest gradient in the tracked one."""
    step_size: float = 0.1
    """c, the length of a step of the weights."""
    power: float = 0.5
    """s, how fast both fall."""
    rho: float = 0.0
    """Keeps the weights apart from the corners."""

    def __post_init__(self) -> None:
        if not 0 < self.tracking <= 1:
            raise ValueError(f"tracking must be above 0 and at most 1, found {self.tracking}")
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")
        for name in ("power", "rho"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least 0 and finite, found {getattr(self, name)}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """Y = 0, lambda = 1/m, and how many steps each task has taken."""
        return {"tracked": rows_state(tasks, shared), **carried_state(tasks), "steps": torch.zeros(tasks)}

    def update(self, state: State, seen: Observation) -> Decision:
        """The tracked gradients, the step on lambda, and d."""
        assert seen.matrix is not None
        steps = state["steps"] + seen.ok
        falling = steps.clamp(min=1) ** -self.power
        tracked = moved(state["tracked"], seen.matrix, self.tracking * falling, seen)
        before = among_present(state, seen.ok)
        slope = tracked @ (before @ tracked) + self.rho * before
        weights = carried(state, seen.ok, project(before - self.step_size * falling * slope, seen.ok))
        new = {"tracked": updated(state["tracked"], tracked, seen), "simplex": weights, "steps": steps}
        return Decision(weights, new, direction=torch.where(seen.ok, weights, 0) @ tracked)
