"""The default of "excess": weights by the part of a task's risk that training has not removed. Ours, not the paper's.

On real mini-batches the paper's estimate counts the gradient noise of a noisy task as excess risk, and that task ends
with most of the weight. This rule weighs by the other part of a task's risk, the one that training cannot remove:

    w_i  proportional to  exp(-trust * r_i / r0_i) / sqrt(n_i * r0_i)

The excess risk that a step reports is a diagnosis beside it (`excessmtl.estimation.robust`). The weights do not use it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.engine.observation import Observation
from excessmtl.engine.plan import Probe
from excessmtl.engine.tensors import is_finite
from excessmtl.estimation.adapter import Adapter
from excessmtl.estimation.robust import ExcessRisk, moved, reducible_share
from excessmtl.methods.base import Decision, Heads, Progress, Rule, State


@dataclass(frozen=True)
class RobustExcess(Rule):
    """Weights by how far a task's risk has come down from where it began.

    r_i is the running loss and r0_i the loss of the first steps (at least half the present one), so r_i / r0_i is the
    share of the task's risk that is left. What is left of a noisy task is mostly what no training can remove; while
    there is excess risk to remove, all tasks are in the same position. The contrast is bounded (e^trust between a task
    that is learned and one that is not), so no task is starved: neither a hard one, which cannot be told from a noisy
    one by training losses, nor one that starts late. n_i is a running norm of the task's gradient at the
    representation; the root puts every task half way between equal units of loss and equal gradients. Rescaling a loss
    changes nothing.

    `docs/estimators.md` has what was tried and measured. Where losses start at zero or below, r_i / r0_i has no
    meaning: such a task is weighed by 1 / n_i, as if nothing had been learned yet.
    """

    name: ClassVar[str] = "excess"
    estimator: ClassVar[str | None] = "robust"
    probe: ClassVar[Probe] = Probe.REPRESENTATION
    heads: ClassVar[Heads] = "unweighted"
    per_sample: ClassVar[bool] = True

    trust: float = 2.0
    """How much less a task counts, in the exponent, that still has all of its first loss."""
    first_steps: int = 20
    """How many of a task's first losses make up r0."""
    decay: float = 0.99
    """Memory of the moving averages of the loss and of the excess risk's ingredients."""
    norm_decay: float = 0.9
    """Memory of the moving average of the gradient norm."""
    cap: float = 100.0
    """How many times smaller than the largest a gradient norm, over the first loss, may count as."""
    damping: float = 1e-3
    """Share of the mean Fisher added to each of its coordinates, in the excess risk."""
    width: int = 32
    """Width the representation is projected to."""
    seed: int = 0
    """Of the projection."""
    batch_dim: int = 0
    """The dimension of the representation that counts samples."""
    feature_dim: int | None = None
    """The one that counts features; None: the second of four or more, else the last."""

    def __post_init__(self) -> None:
        for name in ("decay", "norm_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, found {getattr(self, name)!r}")
        if not 0 <= self.trust < float("inf"):
            raise ValueError(f"trust must be at least 0 and finite, found {self.trust!r}")
        if not isinstance(self.first_steps, int) or self.first_steps < 1:
            raise ValueError(f"first_steps must be a whole number, at least 1, found {self.first_steps!r}")
        if not self.damping > 0:
            raise ValueError(f"damping must be positive, found {self.damping!r}")
        if not self.cap >= 1:
            raise ValueError(f"cap must be at least 1, found {self.cap!r}")
        _ = self._adapter  # which checks its part of the options

    @cached_property
    def _adapter(self) -> Adapter:
        return Adapter(self.width, self.seed, self.batch_dim, self.feature_dim)

    @property
    def _diagnosis(self) -> ExcessRisk:
        return ExcessRisk(self.decay, self.damping)

    @property
    def takes_vectors(self) -> bool:
        """Not where the dimensions of a sequence are in an order of the user's."""
        return self.batch_dim == 0 and self.feature_dim in (None, -1)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """Moving averages of loss and norm (which start at zero), the sum of first losses, the steps of each task."""
        own = {name: torch.zeros(tasks) for name in ("loss", "initial", "norm", "observed")}
        return {**own, **self._diagnosis.init(tasks, self.width)}

    def update(self, state: State, seen: Observation) -> Decision:
        """Refresh what is known of the tasks in this batch; weigh all."""
        moments = self._adapter.moments(seen)
        size = moments.power.sum(1)
        # Squares overflow long before gradients do: such a batch would stay in the averages for ever.
        new = (seen.ok & is_finite(size + moments.fisher.sum(1))).to(seen.losses.dtype)
        early = new * (state["observed"] < self.first_steps)
        own = {
            "loss": torch.lerp(state["loss"], seen.losses, new * (1 - self.decay)),
            "initial": torch.addcmul(state["initial"], early, seen.losses),
            "norm": moved(state["norm"], size.sqrt(), new * (1 - self.norm_decay)),
            "observed": state["observed"] + new,
        }
        steps = own["observed"].clamp(min=1)
        risks, initial = self._risks(own)
        norms = own["norm"] / (1 - torch.pow(self.norm_decay, steps))
        weights = self._weights(risks, initial, norms, own["observed"] > 0)
        diagnosis, excess_risks = self._diagnosis.update(state, moments, new, risks)
        return Decision(weights, {**own, **diagnosis}, excess_risks)

    def progress(self, state: State) -> Progress:
        """From the moving averages; the excess risk is the one that steps report."""
        risks, initial = self._risks(state)
        share = reducible_share(state["signal"], state["noise"], self.damping)
        return Progress(state["observed"], initial, risks, torch.where(state["paired"] > 0, risks * share, torch.nan))

    def _risks(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The running loss and the mean of the first losses."""
        steps = state["observed"].clamp(min=1)
        # Averages that start at zero are short of the truth by this factor.
        risks = state["loss"] / (1 - torch.pow(self.decay, steps))
        return risks, state["initial"] / steps.clamp(max=self.first_steps)

    def _weights(self, risks: Tensor, initial: Tensor, norms: Tensor, known: Tensor) -> Tensor:
        """On the simplex; a task nothing is known of gets the mean of the others'."""
        tiny = torch.finfo(norms.dtype).tiny
        # A task without a gradient does not move the trunk, and has no unit: it must not crowd out the others.
        known = known & (norms > 0)
        # First losses that were next to nothing, by luck or in a warm-up, are no unit for what has grown out of them.
        initial = torch.maximum(initial, risks / 2)
        positive = initial > 0
        left = torch.where(positive, (risks / initial).clamp(min=0), 1)
        unit = torch.where(positive, initial, norms).clamp(min=tiny)
        # In the task's own unit, so that the cap knows vanishing gradients from losses in small units.
        lengths = (norms / unit).clamp(min=tiny).log()
        longest = torch.where(known, lengths, -torch.inf).max()
        lengths = torch.maximum(lengths, longest - math.log(self.cap))
        logs = unit.log().add(left, alpha=self.trust).add(lengths, alpha=0.5).neg()
        shares = torch.where(known, logs, -torch.inf).softmax(0)
        return torch.where(known, shares * (known.sum() / len(known)), 1 / len(known))
