"""FAMO: all losses fall at the same rate, from loss values alone.

Liu et al., "FAMO: Fast Adaptive Multitask Optimization", NeurIPS 2023, https://arxiv.org/abs/2306.03792, Algorithm 1.
With D_i = l_i - lower_i and z = softmax(xi):
    w_i = c z_i / D_i,   c = 1 / sum_j (z_j / D_j)                                             (the weights sum to one)
    after the step, on the same batch:   delta_i = log D_i(before) - log D_i(after)
    xi <- Adam(xi, J delta + gamma xi),   J delta = z (delta - z . delta)
A task that has improved more than the others loses weight.

Tell the balancer the losses after the step: `optimizer.step()`, then `balancer.after_step(losses)` with the losses of
the same batch again (under `torch.no_grad()`; the model in evaluation mode, so that BatchNorm does not count the batch
twice). Without it the losses of the next step stand in: no forward pass more, but delta then also holds the difference
between two batches. The authors' code also clips the shared gradient to length 1, which is left to the loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, constant, method, per_task
from excessmtl.methods.loss_values import positive, softmax_over
from excessmtl.methods.observation import Observation
from excessmtl.solvers.adam import adam_state, adam_step

_LIMIT = 30.0
"""Of |xi|."""


@method("famo")
@dataclass(frozen=True)
class FAMO(Rule):
    """Equal rates of improvement, from loss values alone."""

    uses: ClassVar[frozenset[str]] = frozenset({"after_step"})
    logits: ClassVar[frozenset[str]] = frozenset({"logits"})

    step_size: float = 0.025
    """Of Adam on xi."""
    decay: float = 1e-3
    """gamma, how strongly xi is drawn back to equal weights."""
    lower: float | Mapping[str, float] | Sequence[float] = 0.0
    """Lower bound of the losses, for all tasks, by name or in task order."""

    def __post_init__(self) -> None:
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")
        if not 0 <= self.decay < float("inf"):
            raise ValueError(f"decay must be at least 0 and finite, found {self.decay}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """Lower bounds in task order."""
        return replace(self, lower=per_task("lower", self.lower, tasks, 0.0))

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """xi = 0 and its optimiser; the latest log D of every task, and whether it waits for one to compare with."""
        flags = {name: torch.zeros(tasks, dtype=torch.bool) for name in ("known", "waiting")}
        return {"logits": torch.zeros(tasks), "before": torch.zeros(tasks), **flags, **adam_state(tasks)}

    def update(self, state: State, seen: Observation) -> Decision:
        """w = c z / D, over the tasks that have had a loss."""
        state = self.after_step(state, seen.losses, seen.ok)  # nothing waits where the caller has done so
        before = torch.where(seen.ok, self._log_distance(seen.losses), state["before"])
        known = state["known"] | seen.ok
        weights = softmax_over(known, state["logits"] - before)
        return Decision(weights, {**state, "before": before, "known": known, "waiting": state["waiting"] | seen.ok})

    def after_step(self, state: State, losses: Tensor, ok: Tensor) -> State:
        """The step on xi, for the tasks that wait for a loss after the step and have one now."""
        moves = ok & state["waiting"]
        delta = torch.where(moves, state["before"] - self._log_distance(losses), 0)
        z = softmax_over(moves, state["logits"])
        gradient = z * (delta - z @ delta) + self.decay * state["logits"]
        logits, optimiser = adam_step(state["logits"], gradient, state, moves, self.step_size)
        return {**state, **optimiser, "logits": logits.clamp(-_LIMIT, _LIMIT), "waiting": state["waiting"] & ~ok}

    def _log_distance(self, losses: Tensor) -> Tensor:
        assert isinstance(self.lower, tuple)
        return positive(losses - constant(self.lower, losses)).log()
