"""ExcessMTL, Algorithm 1 of the paper to the letter: weigh tasks by their excess risk.

He et al., "Robust Multi-Task Learning with Excess Risks", ICML 2024, https://arxiv.org/abs/2402.02009. With g_i the
gradient of task i at the shared parameters:

    s_i <- s_i + g_i * g_i                                               diag(sum over steps of g_i g_i')      (Eq. 7)
    E_i = g_i' diag(s_i)^(-1/2) g_i = sum_k g_ik^2 / (sqrt(s_ik) + 1e-12)                                      (Eq. 6)
    alpha_i <- alpha_i exp(eta R_i) / sum_j alpha_j exp(eta R_j)                                               (Eq. 9)

The factor 1/2 of Eq. 6 is dropped, as in the paper. The shared parameters take a step with the *new* alpha, the heads
with their own unweighted gradient. At the first step E_i is the L1 norm of the gradient, and E grows in proportion to
the loss. On real mini-batches the estimate counts the gradient noise of a noisy task as excess risk, and that task ends
with most of the weight; `robust.py` is our repair.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from excessmtl.excess.rounding import add_squares_in_bf16
from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Heads, Rule, State
from excessmtl.methods.observation import Observation

_EPS = 1e-12
_CHUNK = {"cpu": 2**18}
_LARGE_CHUNK = 2**25
"""Numbers treated at once: what is made on the way then stays in the cache of a CPU, and small on a GPU."""


def add_squares(squares: Tensor, gradients: Tensor) -> None:
    """Eq. 7, in place: s [m, n] of gradients [m, n], which are too many to exist twice."""
    squares.addcmul_(gradients, gradients)


def excess_risks(gradients: Tensor, squares: Tensor) -> Tensor:
    """Eq. 6: E [m] of gradients [m, n], with s [m, n] as it was before this step."""
    total = gradients.new_zeros(len(gradients))
    for gradient, before in chunks(gradients, squares):
        root = torch.addcmul(before.to(gradient.dtype), gradient, gradient).sqrt_().add_(_EPS)
        total += torch.div(gradient, root, out=root).mul_(gradient).sum(1)
    return total


def reweighed(scores: Tensor, risks: Tensor, step_size: float, ok: Tensor) -> Tensor:
    """Eq. 9 in logarithms: log alpha [m] up to a constant, after a step with the (relative) excess risks [m].

    A task that takes no part keeps its score. Where all take part the largest is set to 0, so that none grows for ever.
    """
    scores = scores + torch.where(ok, step_size * risks, 0)
    return scores - torch.where(ok.all(), scores.max(), 0)


@dataclass(frozen=True)
class PaperWeights(Rule):
    """The weights of the paper, whatever the gradients of the estimate E.

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
        """Scale processing and Eq. 9, from the excess risks E of this step."""
        counts = ok & (risks > 0)
        observed = state["observed"] + counts
        initial, relative = state["initial"], risks
        if self.normalize == "initial":
            first_steps = max(self.warmup_steps, 1)
            initial = torch.where(counts & (observed <= first_steps), initial + risks, initial)
            mean = initial / observed.clamp(min=1, max=first_steps)
            relative = torch.where(mean > 0, risks / torch.where(mean > 0, mean, 1), 0)
            resting = ((observed > 0) & (observed <= self.warmup_steps)).any()
            relative = torch.where(resting, 0, relative)
        scores = reweighed(state["scores"], relative, self.step_size, ok)
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
        if self.accumulators not in ("fp32", "bf16"):
            raise ValueError(f"accumulators must be one of ['fp32', 'bf16'], found {self.accumulators!r}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """s = 0, the parameters side by side, and the state of the weights."""
        state = {"squares": torch.zeros(tasks, sum(shape.numel() for shape in shared))}
        if self.accumulators == "bf16":
            state = {"squares": state["squares"].bfloat16(), "roundings": torch.zeros((), dtype=torch.int32)}
        return {**state, **super().init(tasks, shared)}

    def update(self, state: State, seen: Observation) -> Decision:
        """One pass of the outer loop of Algorithm 1."""
        pairs = list(_by_parameter(seen, state["squares"]))
        risks = torch.stack([excess_risks(gradients, squares) for gradients, squares in pairs]).sum(0)  # Eq. 6
        risks = torch.where(seen.ok, risks, 0)
        rounded = self.accumulators == "bf16"
        state = {**state, "roundings": state["roundings"] + 1} if rounded else state
        decision = self.weigh(state, risks, seen.ok)  # Eq. 9

        def accumulate() -> None:  # Eq. 7, when the step can no longer fail
            for gradients, squares in pairs:
                if rounded:
                    for gradient, before in chunks(gradients, squares):
                        add_squares_in_bf16(before, gradient, state["roundings"])
                else:
                    add_squares(squares, gradients)

        return Decision(decision.weights, decision.state, decision.excess_risks, finish=accumulate)


def _by_parameter(seen: Observation, squares: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The gradients beside their sums s: all parameters in one, unless some are frozen."""
    if seen.matrix is not None and seen.matrix.shape == squares.shape:
        yield seen.matrix, squares
        return
    for rows, offset in zip(seen.rows, seen.offsets, strict=True):
        yield rows, squares[:, offset : offset + rows.shape[1]]


def chunks(gradients: Tensor, squares: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The columns of both, some at a time."""
    width = max(1, _CHUNK.get(gradients.device.type, _LARGE_CHUNK) // len(gradients))
    return zip(torch.split(gradients, width, dim=1), torch.split(squares, width, dim=1), strict=True)
