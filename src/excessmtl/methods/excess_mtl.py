"""ExcessMTL, Algorithm 1 of the paper to the letter: weigh tasks by their excess risk.

He et al., "Robust Multi-Task Learning with Excess Risks", ICML 2024, https://arxiv.org/abs/2402.02009. With g_i the
gradient of task i at the shared parameters:

    s_i <- s_i + g_i * g_i                                               diag(sum over steps of g_i g_i')      (Eq. 7)
    E_i = g_i' diag(s_i)^(-1/2) g_i = sum_k g_ik^2 / (sqrt(s_ik) + 1e-12)                                      (Eq. 6)
    alpha_i <- alpha_i exp(eta R_i) / sum_j alpha_j exp(eta R_j)                                               (Eq. 9)

The factor 1/2 of Eq. 6 is dropped, as in the paper. The shared parameters take a step with the *new* alpha, the heads
with their own unweighted gradient. On real mini-batches the estimate counts the gradient noise of a noisy task as
excess risk, and that task ends with most of the weight; `robust.py` is our repair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from excessmtl.engine.observation import Observation
from excessmtl.engine.plan import Probe
from excessmtl.estimation.accumulators import ACCUMULATORS, Accumulators
from excessmtl.methods.base import Decision, Heads, Rule, State
from excessmtl.solvers.multiplicative import ascend


@dataclass(frozen=True)
class PaperWeights(Rule):
    """Eq. 9, the multiplicative weights of the paper, whatever the estimate E.

    R_i = E_i (`normalize="none"`), or E_i over its initial value (`"initial"`, the paper's scale processing for
    losses of different kinds): the mean over the first `warmup_steps` steps, during which the weights rest (the
    paper warms up for three epochs), or with `warmup_steps=0` the first value alone (the authors' code). Steps in
    which a task has no gradient at all do not count: there is nothing to divide by.

    The authors' code differs from the paper: weights sum to m (as with `scale="sum"`), heads are weighted
    (`heads="weighted"`), and 1e-7 stands *inside* the root. The step size depends on the normalisation: E falls like
    1/sqrt(t) even for a gradient that does not change, so a warm-up mean is much smaller than the first value and R
    correspondingly larger.
    """

    name: ClassVar[str] = "excess"
    estimator: ClassVar[str | None] = "paper"
    heads: ClassVar[Heads] = "unweighted"
    logits: ClassVar[frozenset[str]] = frozenset({"scores"})

    step_size: float = 0.01
    """eta, how fast weights follow the excess risks."""
    normalize: Literal["none", "initial"] = "none"
    """Whether excess risks are divided by their "initial" values, for losses of different kinds."""
    warmup_steps: int = 0
    """The initial value is the mean over so many steps, in which the weights rest; 0: the first value."""

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

    def weigh(self, state: State, risks: Tensor, ok: Tensor) -> Decision:
        """Eq. 9 with the excess risks of this step."""
        counts = ok & (risks > 0)
        observed = state["observed"] + counts
        if self.normalize == "none":
            initial, gains = state["initial"], self.step_size * risks
        else:
            first_steps = max(self.warmup_steps, 1)
            initial = torch.where(counts & (observed <= first_steps), state["initial"] + risks, state["initial"])
            mean = initial / observed.clamp(min=1, max=first_steps)
            relative = torch.where(mean > 0, risks / torch.where(mean > 0, mean, 1), 0)
            resting = ((observed > 0) & (observed <= self.warmup_steps)).any()
            gains = torch.where(resting, 0, self.step_size * relative)
        scores = ascend(state["scores"], gains, ok)
        state = {**state, "scores": scores, "initial": initial, "observed": observed}
        return Decision(scores.softmax(0), state, risks)


@dataclass(frozen=True)
class PaperExcess(PaperWeights):
    """Algorithm 1 on all shared parameters."""

    probe: ClassVar[Probe] = Probe.SHARED

    accumulators: Literal["fp32", "bf16"] = "fp32"
    """How s is kept: to the letter, or in half the memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accumulators not in ACCUMULATORS:
            raise ValueError(f"accumulators must be one of {list(ACCUMULATORS)}, found {self.accumulators!r}")

    @property
    def _squares(self) -> Accumulators:
        return ACCUMULATORS[self.accumulators]

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """s = 0, and the state of the weights."""
        return {**self._squares.init(tasks, shared), **super().init(tasks, shared)}

    def update(self, state: State, seen: Observation) -> Decision:
        """One pass of the outer loop of Algorithm 1."""
        estimate = self._squares.estimate(state, seen)  # Eq. 6 and 7
        risks = torch.where(seen.ok, estimate.risks, 0)
        decision = self.weigh({**state, **estimate.state}, risks, seen.ok)  # Eq. 9
        return replace(decision, finish=estimate.finish)
