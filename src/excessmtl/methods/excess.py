"""ExcessMTL: weigh tasks by their excess risk, the distance to what training can still reach.

He et al., "Robust Multi-Task Learning with Excess Risks", ICML 2024, https://arxiv.org/abs/2402.02009.

Two rules under one name. `PaperExcess` is Algorithm 1 to the letter. `RobustExcess`, the default, is ours: on real
mini-batches the paper's estimate counts the gradient noise of a noisy task as excess risk, and that task ends with
most of the weight. Ours weighs by the other part of a task's risk, the one that training cannot remove, and reports
an excess risk that noise does not enter (`excessmtl.estimation.robust`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from excessmtl.estimation.accumulators import ACCUMULATORS, Accumulators
from excessmtl.estimation.adapter import Adapter
from excessmtl.estimation.paper import accumulate_and_estimate
from excessmtl.estimation.robust import fisher, pair_signal, reducible_share
from excessmtl.gradients.observation import Observation, Probe
from excessmtl.gradients.rows import is_finite
from excessmtl.methods.base import Decision, Heads, Rule, State, build, method
from excessmtl.solvers.multiplicative import ascend


@dataclass(frozen=True)
class PaperWeights(Rule):
    """The multiplicative weights of the paper, whatever the estimate E.

        E_i = g_i' diag(sum over steps of g_i g_i')^(-1/2) g_i               (Eq. 6, 7)
        alpha_i <- alpha_i exp(eta R_i) / sum_j alpha_j exp(eta R_j)         (Eq. 9)
        shared parameters step with the *new* alpha, heads with their own unweighted gradient

    R_i = E_i (`normalize="none"`), or E_i over its initial value (`"initial"`, the paper's scale processing for
    losses of different kinds): the mean over the first `warmup_steps` steps, during which the weights rest (the
    paper warms up for three epochs), or with `warmup_steps=0` the first value alone (the authors' code).

    The authors' code differs from the paper: weights sum to m (`scale=len(tasks)`), heads are weighted
    (`heads="weighted"`), and 1e-7 stands *inside* the root. The step size depends on the normalisation: E falls like
    1/sqrt(t) even for a gradient that does not change, so a warm-up mean is much smaller than the first value and R
    correspondingly larger.
    """

    name: ClassVar[str] = "excess"
    heads: ClassVar[Heads] = "unweighted"

    step_size: float = 0.01
    normalize: Literal["none", "initial"] = "none"
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size!r}")
        if self.normalize not in ("none", "initial"):
            raise ValueError(f"normalize must be 'none' or 'initial', found {self.normalize!r}")
        if not isinstance(self.warmup_steps, int) or self.warmup_steps < 0:
            raise ValueError(f"warmup_steps must be a whole number, at least 0, found {self.warmup_steps!r}")
        if self.warmup_steps and self.normalize == "none":
            raise ValueError(f"warmup_steps={self.warmup_steps} needs normalize='initial'; there is nothing to warm up")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """Scores (log alpha up to a constant); sum and number of initial risks."""
        return {"scores": torch.zeros(tasks), "initial": torch.zeros(tasks), "observed": torch.zeros(tasks)}

    def _reweigh(self, state: State, risks: Tensor, ok: Tensor) -> Decision:
        observed = state["observed"] + ok
        if self.normalize == "none":
            initial, gains = state["initial"], self.step_size * risks
        else:
            warm = observed <= max(self.warmup_steps, 1)
            initial = torch.where(ok & warm, state["initial"] + risks, state["initial"])
            mean = initial / observed.clamp(min=1, max=max(self.warmup_steps, 1))
            relative = risks / mean.clamp(min=torch.finfo(mean.dtype).tiny)
            resting = ((observed > 0) & (observed <= self.warmup_steps)).any()
            gains = torch.where(resting, 0, self.step_size * relative)
        scores = ascend(state["scores"], gains, ok)
        state = {**state, "scores": scores, "initial": initial, "observed": observed}
        return Decision(scores.softmax(0), state, risks)


@dataclass(frozen=True)
class PaperExcess(PaperWeights):
    """Algorithm 1 of the paper, on all shared parameters."""

    probe: ClassVar[Probe] = Probe.SHARED
    replayable: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    accumulators: Literal["fp32", "bf16", "factored"] = "fp32"
    """How the sums of squared gradients are kept: to the letter, in half the memory, or in next to none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accumulators not in ACCUMULATORS:
            raise ValueError(f"accumulators must be one of {list(ACCUMULATORS)}, found {self.accumulators!r}")

    @property
    def _kept(self) -> Accumulators:
        return ACCUMULATORS[self.accumulators]

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """The accumulators too."""
        return {**self._kept.init(tasks, shared), **super().init(tasks, shared)}

    def reduce(self, state: State, tasks: slice, seen: Observation) -> Tensor:
        """E of these tasks."""
        own = {name: tensor[tasks] if tensor.ndim else tensor for name, tensor in state.items()}
        estimate = self._kept.estimate(own, seen)
        if estimate.finish is not None:
            estimate.finish()
        for name, new in estimate.state.items():
            own[name].copy_(new)
        return estimate.risks

    def update(self, state: State, seen: Observation) -> Decision:
        """One pass of the outer loop of Algorithm 1."""
        if seen.reduced is not None:
            return self._reweigh(state, torch.where(seen.ok, seen.reduced, 0), seen.ok)
        estimate = self._kept.estimate(state, seen)
        risks = torch.where(seen.ok, estimate.risks, 0)
        return replace(self._reweigh({**state, **estimate.state}, risks, seen.ok), finish=estimate.finish)


@dataclass(frozen=True)
class PaperExcessAtRepresentation(PaperWeights):
    """The same formula on the adapter gradient at the representation: ours, for the price of uniform weighting."""

    probe: ClassVar[Probe] = Probe.REPRESENTATION
    per_sample: ClassVar[bool] = True
    replayable: ClassVar[bool] = True

    width: int = 32
    """Width the representation is projected to."""
    seed: int = 0
    batch_dim: int = 0
    feature_dim: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._adapter()

    def _adapter(self) -> Adapter:
        return Adapter(self.width, self.seed, self.batch_dim, self.feature_dim)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """As in the paper's rule, with one small accumulator whatever the trunk."""
        return {"squares": torch.zeros(tasks, (self.width + 1) * self.width), **super().init(tasks, shared)}

    def update(self, state: State, seen: Observation) -> Decision:
        """Algorithm 1 with the mean adapter gradient for g."""
        rows = self._adapter().moments(seen).first.flatten(1)
        risks, squares = accumulate_and_estimate(rows, state["squares"], seen.ok)
        return self._reweigh({**state, "squares": squares}, risks, seen.ok)


@dataclass(frozen=True)
class RobustExcess(Rule):
    """Weights by how far a task's risk has come down from where it began.

        w_i  proportional to  exp(-trust * r_i / r0_i) / sqrt(n_i * r0_i)

    r_i is the running loss and r0_i the loss of the first steps (at least half the present one), so r_i / r0_i is the
    share of the task's risk that is left. What is left of a noisy task is mostly what no training can remove; while
    there is excess risk to remove, all tasks are in the same position. The contrast is bounded (e^trust between a task
    that is learned and one that is not), so nobody is starved: neither the hard, which cannot be told from the noisy
    by training losses alone, nor one that starts late. n_i is a running norm of the task's gradient at the
    representation; the root puts every task half way between equal units of loss and equal gradients. Rescaling a loss
    changes nothing.

    `docs/estimators.md` has what was tried and measured. Where losses start at zero or below, r_i / r0_i has no
    meaning: such a task is weighed by 1 / n_i, as if nothing had been learned yet.
    """

    name: ClassVar[str] = "excess"
    probe: ClassVar[Probe] = Probe.REPRESENTATION
    heads: ClassVar[Heads] = "unweighted"
    per_sample: ClassVar[bool] = True
    replayable: ClassVar[bool] = True

    trust: float = 2.0
    """How much less a task counts, in the exponent, that still has all of its first loss."""
    first_steps: int = 20
    """How many of a task's first losses make up r0."""
    decay: float = 0.99
    """Memory of the averages of the loss and of the excess risk's ingredients."""
    norm_decay: float = 0.9
    """Memory of the average gradient norm."""
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

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """Averages of loss, norm, U and F (which start at zero), the sum of first losses, and how many steps each has.

        `observed` counts the steps a task had a loss, `paired` those with two or more labelled samples.
        """
        numbers = {name: torch.zeros(tasks) for name in ("loss", "initial", "norm", "observed", "paired")}
        return {**numbers, **{name: torch.zeros(tasks, self.width + 1) for name in ("signal", "noise")}}

    def update(self, state: State, seen: Observation) -> Decision:
        """Refresh what is known of the tasks in this batch; weigh all."""
        moments = self._adapter.moments(seen)
        size, signal, noise = moments.power.sum(1), pair_signal(moments), fisher(moments)
        # Squares overflow long before gradients do: such a batch would stay in the averages for ever.
        new = (seen.ok & is_finite(size + noise.sum(1))).to(seen.losses.dtype)
        paired = new * (moments.count >= 2)
        pairs = (paired * (1 - self.decay)).unsqueeze(1)
        early = new * (state["observed"] < self.first_steps)
        # Averages move by a share of the way, none where there is nothing new.
        state = {
            "loss": torch.lerp(state["loss"], seen.losses, new * (1 - self.decay)),
            "initial": torch.addcmul(state["initial"], early, seen.losses),
            "norm": _moved(state["norm"], size.sqrt(), new * (1 - self.norm_decay)),
            "observed": state["observed"] + new,
            "paired": state["paired"] + paired,
            "signal": _moved(state["signal"], signal, pairs),
            "noise": _moved(state["noise"], noise, pairs),
        }
        steps = state["observed"].clamp(min=1)
        # Averages that start at zero are short of the truth by this factor; U and F alike, so their ratio is not.
        risks = state["loss"] / (1 - torch.pow(self.decay, steps))
        norms = state["norm"] / (1 - torch.pow(self.norm_decay, steps))
        initial = state["initial"] / steps.clamp(max=self.first_steps)
        weights = self._weights(risks, initial, norms, state["observed"] > 0)
        share = reducible_share(state["signal"], state["noise"], self.damping)
        return Decision(weights, state, torch.where(state["paired"] > 0, risks * share, torch.nan))

    def _weights(self, risks: Tensor, initial: Tensor, norms: Tensor, known: Tensor) -> Tensor:
        """On the simplex; a task nothing is known of gets the mean of the others'."""
        tiny = torch.finfo(norms.dtype).tiny
        # A task without a gradient has no say in the trunk, and no unit: it must not crowd out the others.
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


def _moved(average: Tensor, value: Tensor, share: Tensor) -> Tensor:
    """A share of the way to a value, which need not be finite where the share is 0."""
    return torch.where(share > 0, torch.lerp(average, value, share), average)


@method("excess")
def excess(
    estimator: Literal["robust", "paper"] = "robust",
    probe: Literal["all", "representation"] | None = None,
    **options: Any,
) -> Rule:
    """Weights by excess risk: what training can still improve, not noise ("robust", or the paper's)."""
    rules = {
        "robust": {"representation": RobustExcess},
        "paper": {"all": PaperExcess, "representation": PaperExcessAtRepresentation},
    }
    if estimator not in rules:
        raise ValueError(f"estimator must be one of {list(rules)}, found {estimator!r}")
    choices: dict[str, type[Rule]] = rules[estimator]  # type: ignore[assignment]
    if probe is not None and probe not in choices:
        raise ValueError(f"probe must be one of {list(choices)} with estimator={estimator!r}, found {probe!r}")
    chosen = choices[probe] if probe is not None else next(iter(choices.values()))
    return build(chosen, options, f"estimator={estimator!r}")
