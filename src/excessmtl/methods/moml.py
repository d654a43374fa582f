"""MOML: weights that a validation set would choose, by a multi-objective step one look ahead.

Ye et al., NeurIPS 2021, https://arxiv.org/abs/2102.07121. With s = softmax(p) and one inner step
theta' = theta - eta_in sum_i s_i grad l_i^train(theta):
    h_i = grad_p l_i^val(theta'(p)) = -eta_in J (g_i^val(theta') . g_j^train)_j,   J = diag(s) - s s'
    gamma = MGDA(h_1 / c_1..h_m / c_m),   p <- Adam(p, sum_i gamma_i h_i)
and the model takes an ordinary step with the weights softmax(p). The step on p is along the h_i as they are; what they
are divided by for the min-norm problem alone is up to `normalize`: c_i = |h_i| ("l2", the default, LibMTL's and the
authors' on Office-Home), the validation loss of task i ("loss", the authors' on NYUv2), or 1 ("none").

Give `validation_losses=` to `backward`: a function (called with the parameters moved to theta') or a dict of losses at
theta, the first-order form. Products count the whole model, heads included. Without it the training losses serve, by
their gradients at the shared parameters. An auxiliary forward leaves the BatchNorm statistics of `shared` alone; keep
the heads' own in eval mode if they have any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.observation import Observation
from excessmtl.methods.second_batch import products
from excessmtl.solvers.adam import adam_state, adam_step
from excessmtl.solvers.min_norm import min_norm

_NORMALIZERS = ("none", "l2", "loss")


@method("moml")
@dataclass(frozen=True)
class MOML(Rule):
    """Weights a validation set would choose, by MGDA on its gradients."""

    uses_host: ClassVar[bool] = True
    probe: ClassVar[Probe] = Probe.SHARED
    logits: ClassVar[frozenset[str]] = frozenset({"logits"})
    uses: ClassVar[frozenset[str]] = frozenset({"validation_losses"})
    added: ClassVar[Mapping[str, str]] = {"normalize": "none"}

    inner_step: float = 0.1
    """eta_in, the length of the look-ahead."""
    step_size: float = 1e-3
    """Of Adam on p."""
    normalize: str = "l2"
    """What the upper-level gradients are divided by before gamma is solved for: "l2", "loss" or "none"."""

    def __post_init__(self) -> None:
        for name in ("inner_step", "step_size"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, found {getattr(self, name)}")
        if self.normalize not in _NORMALIZERS:
            raise ValueError(f"normalize must be one of {list(_NORMALIZERS)}, found {self.normalize!r}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """p = 0, and its optimiser."""
        return {"logits": torch.zeros(tasks), **adam_state(tasks)}

    def lookahead(self, state: State) -> Tensor:
        """eta_in s."""
        return self.inner_step * state["logits"].softmax(0)

    def update(self, state: State, seen: Observation) -> Decision:
        """The upper-level step on p; tasks that took no part neither move nor are moved by."""
        s = torch.where(seen.ok, state["logits"], -torch.inf).softmax(0)
        s = torch.where(seen.ok, s, 0)
        cross = products(seen)
        upper = -self.inner_step * (cross * s - (cross @ s)[:, None] * s)
        unit = upper / upper.abs().max().clamp(min=torch.finfo(upper.dtype).tiny)  # fourth powers of gradients overflow
        unit = unit / self._divisors(unit, seen)[:, None]
        gamma = min_norm(unit @ unit.T, seen.ok)
        logits, optimiser = adam_step(state["logits"], gamma @ upper, state, seen.ok, self.step_size)
        return Decision(logits.softmax(0), {"logits": logits, **optimiser})

    def _divisors(self, upper: Tensor, seen: Observation) -> Tensor:
        """[m] what `normalize` divides by; 1 where that is zero or not finite."""
        losses = seen.losses if seen.validation_losses is None else seen.validation_losses
        divisors = {"none": torch.ones_like(losses), "l2": torch.linalg.vector_norm(upper, dim=1), "loss": losses.abs()}
        divisor = divisors[self.normalize]
        return torch.where(divisor.isfinite() & (divisor > 0), divisor, 1)
