"""STCH: the smooth maximum of the losses, each relative to where it stood after a warm-up.

Lin et al., "Smooth Tchebycheff Scalarization for Multi-Objective Optimization", ICML 2024,
https://arxiv.org/abs/2402.19078. In general mu log sum_i exp(lambda_i (f_i - z_i) / mu); in the authors' multi-task
experiments, with n_i the mean loss of task i in epoch W = `warmup_epochs`, counted from 0 (their nadir point):
    L = m mu log sum_i exp(log(l_i / n_i) / mu),   w_i = dL/dl_i = m s_i / l_i,   s = softmax(log(l / n) / mu)
and L = sum_i log l_i, w_i = 1 / l_i, during the warm-up, which is the epochs 0 to W, W included. Small mu trains the
worst task alone. mu = 1 and W = 4 are LibMTL's defaults too, as given for the authors' multi-task experiments. LibMTL
reports weights of 1; here `step.weights` are the w_i.

Call `balancer.end_epoch()` after every epoch; if it is never called, every `window` steps count as one (also in the
first epoch of a loop that does call it). A task without a loss in that epoch has s_i as if l_i = n_i. A task that is
missing from a batch is compared by its latest loss. Losses must be positive; what is below 1e-8 counts as 1e-8. The
total is the method's own, so `scale="sum"` and `"mean"` leave it as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.loss_values import check_epochs
from excessmtl.methods.observation import Observation
from excessmtl.methods.since_epoch import SinceEpoch


@method("stch")
@dataclass(frozen=True)
class STCH(Rule):
    """The smooth maximum of the losses, relative to a warm-up."""

    simplex: ClassVar[bool] = False

    mu: float = 1.0
    """Smoothness: the smaller, the closer to the maximum."""
    warmup_epochs: int = 4
    """W, the epoch, counted from 0, that losses are compared with; the comparison begins in the next."""
    window: int = 100
    """Steps that count as an epoch where `end_epoch` is never called."""

    def __post_init__(self) -> None:
        if not self.mu > 0:
            raise ValueError(f"mu must be positive, found {self.mu}")
        check_epochs(("warmup_epochs", "window"), (self.warmup_epochs, self.window), (0, 1))

    @property
    def _compared(self) -> SinceEpoch:
        return SinceEpoch(self.warmup_epochs, self.window)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """The latest losses, and the sums of epoch W."""
        return self._compared.init(tasks)

    def prior(self, tasks: int) -> Tensor:
        """One each."""
        return torch.ones(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """w_i = m s_i / l_i after the warm-up, 1 / l_i before; s = softmax(log(l / n) / mu)."""
        return self._compared.decide(state, seen, lambda ratios: ratios.log() / self.mu)

    def end_epoch(self, state: State) -> State:
        """The next epoch."""
        return self._compared.end_epoch(state)
