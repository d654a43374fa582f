"""GradNorm: gradient norms in proportion to how far each task lags behind.

Chen et al., ICML 2018, https://arxiv.org/abs/1711.02257. W is the last shared layer.
    G_i = w_i |grad_W l_i|,   r_i = (l_i / l_i(0)) / mean_j (l_j / l_j(0)),   L_grad = sum_i |G_i - mean(G) r_i^alpha|
    dL_grad/dw_i = sign(G_i - mean(G) r_i^alpha) |grad_W l_i|      (the target counts as a constant)
w starts at 1. As in Algorithm 1 of the paper, a step trains the whole model, heads included, on sum_i w_i l_i. Only
then w takes a gradient step on L_grad (rate 0.025) and is rescaled to sum m (`scale="mean"`: to 1), for the next step
(with `every=k`: from the next estimate on). The closed form needs no second backward pass through the model, which
layers such as SyncBatchNorm do not have.

Other implementations differ: LibMTL has m softmax(p) in place of rescaled weights, norms over all shared parameters,
the mean loss of the first epoch for l_i(0), weights trained (and decayed) by the model's optimiser, and unweighted
heads (`heads="unweighted"`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Rule, State, method, per_task
from excessmtl.methods.observation import Observation

_SMALLEST = 1e-3
"""Weights stay above this: a negative one would train a task backwards."""


@method("gradnorm")
@dataclass(frozen=True)
class GradNorm(Rule):
    """Equal gradient norms, larger for tasks that lag behind."""

    probe: ClassVar[Probe] = Probe.LAYER
    simplex: ClassVar[bool] = False

    alpha: float = 1.5
    """How strongly tasks that lag behind are pulled (0.12 suits similar tasks)."""
    step_size: float = 0.025
    """How far the weights move in a step, along the gradient of what GradNorm minimises."""
    initial_losses: Mapping[str, float] | Sequence[float] | None = None
    """l_i(0), for instance log(classes); None: each task's first loss."""

    def __post_init__(self) -> None:
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha must be at least 0 and finite, found {self.alpha}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """Initial losses in task order; 0 stands for "not known yet"."""
        initial = per_task("initial_losses", self.initial_losses, tasks, 0.0)
        if self.initial_losses is not None and not all(value > 0 for value in initial):
            raise ValueError(f"initial_losses must be positive, found {initial}")
        return replace(self, initial_losses=initial)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """w = 1, and l_i(0)."""
        known = self.initial_losses[:tasks] if isinstance(self.initial_losses, tuple) else ()
        return {"weights": torch.ones(tasks), "initial": torch.tensor([*known, *(0.0,) * (tasks - len(known))])}

    def prior(self, tasks: int) -> Tensor:
        """One each."""
        return torch.ones(tasks)

    def total(self, tasks: int) -> float:
        """The number of tasks."""
        return float(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """This step has the weights of the state. For the next: a gradient step on L_grad, then sum w = m again.

        Tasks that took no part keep their weights.
        """
        old, ok = state["weights"], seen.ok
        tiny = torch.finfo(old.dtype).tiny
        initial = torch.where(ok & (state["initial"] <= 0), seen.losses, state["initial"])
        progress = seen.losses.clamp(min=0) / initial.clamp(min=tiny)
        rate = progress / seen.mean_over_ok(progress).clamp(min=tiny)
        norms = seen.gram.diagonal().clamp(min=0).sqrt()
        scaled = old * norms
        target = seen.mean_over_ok(scaled) * rate**self.alpha
        # A sign that is only rounding would move weights that are where they should be.
        sign = torch.where((scaled - target).abs() > 1e-5 * target, (scaled - target).sign(), 0)
        moved = (old - self.step_size * sign * norms).clamp(min=_SMALLEST)
        moved = torch.where(ok, moved, 0)
        # The tasks that took part share out among themselves what they had.
        total = torch.where(ok, old, 0).sum()
        weights = torch.where(ok, moved * total / moved.sum().clamp(min=tiny), old)
        return Decision(old, {"weights": weights, "initial": initial})
