"""LDC-MTL: weights that are learned together with the model, with a penalty on losses that drift apart.

Xiao et al., "LDC-MTL: Balancing Multi-Task Learning through Scalable Loss Discrepancy Control", 2025,
https://arxiv.org/abs/2502.08585. The upper level of a bilevel problem keeps neighbouring losses together, the lower one
trains the model. As the authors do, both are one objective, whose gradient trains model and weights in one loop:
    L = sum_i s_i l_i + c sum_i |t_i l_i - t_{i+1} l_{i+1}|,   s = softmax(v),   t = s (`compare="weighted"`) or 1
    w_i = dL/dl_i,   v <- Adam(v, dL/dv)
The penalty runs along the order of the tasks, so that order matters with three tasks or more.

In the paper a small network on the shared features gives s, a value per batch; here v has one number per task. Divide
losses of different units by their first values yourself. A task that is missing from a batch is compared by its latest
loss. The total is the method's own, so `scale="sum"` and `"mean"` leave it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import pad

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.loss_values import latest, latest_state, softmax_over
from excessmtl.methods.observation import Observation
from excessmtl.solvers.adam import adam_state, adam_step

_LIMIT = 30.0
"""Of |v|."""


@method("ldc_mtl")
@dataclass(frozen=True)
class LDCMTL(Rule):
    """Learned weights, with a penalty on losses that drift apart."""

    simplex: ClassVar[bool] = False
    chained: ClassVar[bool] = True
    logits: ClassVar[frozenset[str]] = frozenset({"logits"})

    penalty: float = 0.1
    """c, how much the differences between losses count. Above 0.5 a weight may be negative."""
    step_size: float = 1e-3
    """Of Adam on v; the authors take the learning rate of the model."""
    compare: str = "weighted"
    """Which losses are kept together: "weighted" ones or "plain" ones."""

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < float("inf"):
            raise ValueError(f"penalty must be at least 0 and finite, found {self.penalty}")
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")
        if self.compare not in ("weighted", "plain"):
            raise ValueError(f'compare must be "weighted" or "plain", found {self.compare!r}')

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """v = 0 and its optimiser; the latest loss of every task."""
        return {"logits": torch.zeros(tasks), **adam_state(tasks), **latest_state(tasks)}

    def update(self, state: State, seen: Observation) -> Decision:
        """The derivatives of L by the losses, which are the weights, and by v."""
        losses, known, kept = latest(state, seen)
        s = softmax_over(known, state["logits"])
        compared = s * losses if self.compare == "weighted" else losses
        signs = torch.where(known[:-1] & known[1:], (compared[:-1] - compared[1:]).sign(), 0)
        slopes = self.penalty * (pad(signs, (0, 1)) - pad(signs, (1, 0)))  # of the penalty, by what is compared
        by_s = losses * (1 + slopes) if self.compare == "weighted" else losses
        gradient = s * (by_s - s @ by_s)
        logits, optimiser = adam_step(state["logits"], gradient, state, seen.ok, self.step_size)
        weights = s * (1 + slopes) if self.compare == "weighted" else s + slopes
        return Decision(weights, {"logits": logits.clamp(-_LIMIT, _LIMIT), **optimiser, **kept})
