"""The default of "excess": weights by the excess risk that is left and the risk that cannot be removed. Ours.

On real mini-batches the paper's estimate counts the gradient noise of a noisy task as excess risk, and that task ends
with most of the weight. This rule splits the risk r_i of a task into an excess risk e_i, which training can still
remove, and the rest, which it cannot (`excessmtl.excess.excess_risk`):

    w_i  proportional to  exp(-trust * (r_i - e_i) / r0_i) * (e_i / r_i)^need / sqrt(n0_i * r0_i)

The first factor takes weight from a task whose risk does not come down: noise. The second gives weight to a task with
something left to learn, as the paper does. The third puts the tasks on a common scale, that of their first steps.

Losses that reckon with the noise of their own labels, as the robust ones do, need the third alone: of likelihoods equal
weights are right. `likelihoods` names their tasks. Those of classes have one scale; doubt is among the others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from excessmtl.excess.excess_risk import Adapter, pair_signal, reducible_share
from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Heads, Progress, Rule, State, constant
from excessmtl.methods.likelihoods import Likelihoods, in_task_order
from excessmtl.methods.observation import Observation

_LEAST_SHARE = 0.01  # a smaller share of excess risk is not told from none by averages of this length


@dataclass(frozen=True)
class RobustExcess(Rule):
    """Weights by what a task can still learn and by what it cannot.

    r_i is the running loss, r0_i that of the task's first steps (at least half the present one), e_i the running excess
    risk, and n0_i the norm of the task's gradient at the representation in its first steps. Rescaling a loss changes
    nothing. The contrast is bounded (e^trust): a hard task, which losses cannot tell from a noisy one, is not starved.
    Where losses start at zero or below, the shares have no meaning: such a task is weighed by 1 / n0_i, as if nothing
    had been learned yet. `docs/estimators.md` has what was tried and measured.
    """

    name: ClassVar[str] = "excess"
    estimator: ClassVar[str | None] = "robust"
    probe: ClassVar[Probe] = Probe.REPRESENTATION
    heads: ClassVar[Heads] = "unweighted"
    per_sample: ClassVar[bool] = True
    added: ClassVar[Mapping[str, Any]] = {"likelihoods": ()}

    trust: float = 1.5
    """How much less a task counts, in the exponent, whose first loss is still there and cannot be removed."""
    need: float = 0.2
    """Exponent of the share of the loss that can still be removed; 0: that share does not count."""
    first_steps: int = 20
    """How many of a task's first steps make up r0 and n0."""
    decay: float = 0.99
    """Memory of the moving averages of the loss and of the excess risk's ingredients."""
    cap: float = 100.0
    """How many times smaller than the largest a first gradient norm, over the first loss, may count as."""
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
    likelihoods: Likelihoods = ()
    """Tasks whose loss is a likelihood under its own label noise, so that `trust` and `need` do not count: their names,
    or a mapping to True (they have one scale) or "own" (the loss has a unit of its own). `MultiTaskLoss` names them."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be at least 0 and below 1, found {self.decay!r}")
        for name in ("trust", "need"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, found {getattr(self, name)!r}")
        if not isinstance(self.first_steps, int) or self.first_steps < 1:
            raise ValueError(f"first_steps must be a whole number, at least 1, found {self.first_steps!r}")
        if not self.damping > 0:
            raise ValueError(f"damping must be positive, found {self.damping!r}")
        if not self.cap >= 1:
            raise ValueError(f"cap must be at least 1, found {self.cap!r}")
        _ = self._adapter  # which checks its part of the options

    def bind(self, tasks: Sequence[str]) -> Self:
        """The likelihoods in task order."""
        return replace(self, likelihoods=in_task_order(self.likelihoods, tasks))

    @cached_property
    def _adapter(self) -> Adapter:
        return Adapter(self.width, self.seed, self.batch_dim, self.feature_dim)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """Moving averages of the loss, of U and of F; sums of the first losses and norms; the steps of each task."""
        numbers = {name: torch.zeros(tasks) for name in ("loss", "initial", "norm", "observed", "paired")}
        return {**numbers, **{name: torch.zeros(tasks, self.width + 1) for name in ("signal", "noise")}}

    def update(self, state: State, seen: Observation) -> Decision:
        """Refresh what is known of the tasks in this batch; weigh all."""
        moments = self._adapter.moments(seen)
        size = moments.power.sum(1)
        # Squares overflow long before gradients do: such a batch would stay in the averages for ever.
        new = seen.ok & (size + moments.fisher.sum(1) < math.inf)
        early = new & (state["observed"] < self.first_steps)
        paired = new & (moments.count >= 2)
        new_state = {
            "loss": torch.where(new, torch.lerp(state["loss"], seen.losses, 1 - self.decay), state["loss"]),
            "initial": torch.where(early, state["initial"] + seen.losses, state["initial"]),
            "norm": torch.where(early, state["norm"] + size.sqrt(), state["norm"]),
            "observed": state["observed"] + new,
            "paired": state["paired"] + paired,
            "signal": self._moved(state["signal"], pair_signal(moments), paired),
            "noise": self._moved(state["noise"], moments.fisher, paired),
        }
        # Both averages start at zero and are short of the truth by the same factor, so their ratio is not.
        shares = reducible_share(new_state["signal"], new_state["noise"], self.damping)
        risks, initial, norms = self._averages(new_state)
        weigh = self._with_heads if seen.heads else self._without_heads
        # A task without a gradient does not move the trunk, and has no unit: it must not crowd out the others.
        weights = _simplex(weigh(risks, self._believed(shares, new_state["paired"]), initial, norms), norms <= 0)
        return Decision(weights, new_state, torch.where(new_state["paired"] > 0, risks * shares, torch.nan))

    def _moved(self, average: Tensor, value: Tensor, paired: Tensor) -> Tensor:
        """Of other tasks the value need not be finite."""
        return torch.where(paired.unsqueeze(1), torch.lerp(average, value, 1 - self.decay), average)

    def progress(self, state: State) -> Progress:
        """From the moving averages; the excess risk is the one that steps report."""
        risks, initial, _ = self._averages(state)
        share = reducible_share(state["signal"], state["noise"], self.damping)
        return Progress(state["observed"], initial, risks, torch.where(state["paired"] > 0, risks * share, torch.nan))

    def _averages(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """[m] each: the running loss r, and the means r0 and n0 of the first losses and gradient norms."""
        steps = state["observed"].clamp(min=1)
        first = steps.clamp(max=self.first_steps)
        # An average that starts at zero is short of the truth by this factor.
        return state["loss"] / (1 - torch.pow(self.decay, steps)), state["initial"] / first, state["norm"] / first

    def _believed(self, shares: Tensor, paired: Tensor) -> Tensor:
        """The shares e/r. A few small batches say next to nothing about them: begin with the mean of all tasks."""
        belief = (paired / self.first_steps).clamp(max=1)
        mean = (shares * belief).sum() / belief.sum().clamp(min=torch.finfo(shares.dtype).tiny)
        return torch.lerp(mean, shares, belief)

    def _with_heads(self, risks: Tensor, shares: Tensor, initial: Tensor, norms: Tensor) -> Tensor:
        """[m] logarithms of the weights, from r, e/r, r0 and n0."""
        tiny = torch.finfo(norms.dtype).tiny
        # First losses that were next to nothing, by luck or in a warm-up, are no unit for what has grown out of them.
        initial = torch.maximum(initial, risks / 2)
        no_unit = initial <= 0
        unit = torch.where(no_unit, norms, initial).clamp(min=tiny)
        left = (_irreducible(risks, shares) / unit).masked_fill(no_unit, 1)
        # In the task's own unit, so that the cap knows vanishing gradients from losses in small units.
        lengths = norms / unit
        lengths = torch.maximum(lengths, lengths.max() / self.cap).clamp(min=tiny)
        scales = unit.log().add(lengths.log(), alpha=0.5)
        return self._joined(self._need(shares).sub(left, alpha=self.trust), scales, norms > 0)

    def _without_heads(self, risks: Tensor, shares: Tensor, initial: Tensor, norms: Tensor) -> Tensor:
        """The same where all tasks share one output, and with it the unit of their losses: groups of one task.

        A rule that trusts low losses would follow itself into a corner there, so `trust` counts a third.
        """
        known = norms > 0
        unit = torch.where(known, torch.maximum(initial, risks / 2), 0).sum() / known.sum().clamp(min=1)
        left = torch.where(unit > 0, _irreducible(risks, shares) / unit, 1)
        return self._joined(self._need(shares).sub(left, alpha=self.trust / 3), torch.zeros_like(norms), known)

    def _joined(self, doubt: Tensor, scales: Tensor, known: Tensor) -> Tensor:
        """Likelihoods of one unit have the mean of their scales; doubt moves weight among tasks that are none."""
        if not self.likelihoods:
            return doubt - scales
        alike, others = (
            constant([float(kind is own) for kind in self.likelihoods], doubt) * known for own in (True, False)
        )
        if True in self.likelihoods:
            scales = torch.where(alike > 0, (alike * scales).sum() / alike.sum().clamp(min=1), scales)
        if False not in self.likelihoods:
            return -scales
        doubt = doubt - doubt.masked_fill(others == 0, -math.inf).logsumexp(0) + others.sum().clamp(min=1).log()
        return torch.where(others > 0, doubt, 0) - scales

    def _need(self, shares: Tensor) -> Tensor:
        return self.need * shares.clamp(min=_LEAST_SHARE).log()


def _irreducible(risks: Tensor, shares: Tensor) -> Tensor:
    """r - e."""
    return torch.addcmul(risks, risks, shares, value=-1).clamp(min=0)


def _simplex(logs: Tensor, unknown: Tensor) -> Tensor:
    """Weights that sum to one; a task nothing is known of gets the mean of the others'."""
    share = 1 / len(logs)
    weights = logs.masked_fill(unknown, -math.inf).softmax(0)
    return (weights * (1 - unknown.sum() * share)).masked_fill(unknown, share)
