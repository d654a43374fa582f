"""AutoScale: fixed weights, chosen in the first steps so that all gradients are equally long.

Yang et al., "AutoScale: Linear Scalarization Guided by Multi-Task Optimization Metrics", 2025,
https://arxiv.org/abs/2508.13979.

The paper's: fixed weights that do well have gradients of similar length, gradients with a low condition number, and
losses of similar size. Training has two phases: the first goes through windows of steps and chooses weights by such a
metric, the second keeps fixed weights. One of the metrics is the gradient magnitude similarity (Yu et al. 2020), for
each pair of tasks
    2 |w_i g_i| |w_j g_j| / (|w_i g_i|^2 + |w_j g_j|^2)

Ours, written from the abstract and summaries, without the paper's equations: that only this metric counts; that its
maximum, 1 for every pair where w_i is proportional to 1 / |g_i|, is taken at once, for the mean lengths of a window, in
place of an optimiser on the weights; that the weights of a window are in force in the next; that the second phase takes
the mean of all of them; and how many windows there are, and how long. Phase 1 should be a small part of training.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from excessmtl.methods.base import Decision, Probed, State, method
from excessmtl.methods.loss_values import check_epochs
from excessmtl.methods.observation import Observation


@method("autoscale")
@dataclass(frozen=True)
class AutoScale(Probed):
    """Fixed weights, from the gradient lengths of the first steps."""

    windows: int = 5
    """How many windows phase 1 has."""
    window: int = 100
    """Steps of a window."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epochs(("windows", "window"), (self.windows, self.window), (1, 1))

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """Equal weights, and sums over the window and over the windows."""
        sums = {name: torch.zeros(tasks) for name in ("lengths", "counts", "found")}
        return {"weights": torch.full((tasks,), 1 / tasks), **sums, "steps": torch.zeros(())}

    def update(self, state: State, seen: Observation) -> Decision:
        """The weights of the window; at its end, those that the window asks for."""
        exploring = state["steps"] < self.windows * self.window
        steps = state["steps"] + exploring
        ends = exploring & (steps % self.window == 0)
        lengths = state["lengths"] + torch.where(exploring, seen.gram.diagonal().clamp(min=0).sqrt(), 0)
        counts = state["counts"] + (seen.ok & exploring)
        asked = _equal_lengths(lengths / counts.clamp(min=1), state["weights"])
        sums = state["found"] + torch.where(ends, asked, 0)
        chosen = torch.where(steps == self.windows * self.window, sums / self.windows, asked)
        new = {
            "weights": torch.where(ends, chosen, state["weights"]),
            "lengths": torch.where(ends, 0, lengths),
            "counts": torch.where(ends, 0, counts),
            "found": sums,
            "steps": steps,
        }
        return Decision(state["weights"], new)


def _equal_lengths(lengths: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Weights in proportion to 1 / length; tasks without a gradient keep theirs, the others share out the rest."""
    has_gradient = lengths > torch.finfo(lengths.dtype).tiny
    inverse = torch.where(has_gradient, torch.where(has_gradient, lengths, torch.inf).min() / lengths, 0)
    rest = torch.where(has_gradient, before, 0).sum()
    return torch.where(has_gradient, rest * inverse / inverse.sum().clamp(min=torch.finfo(lengths.dtype).tiny), before)
