"""SDMGrad: near the mean gradient, the step that helps the worst task, from independent batches.

Xiao et al., "Direction-oriented Multi-objective Learning", NeurIPS 2023, https://arxiv.org/abs/2305.18409, Algorithm 1.
With g_0 the mean gradient and a pull l towards it:
    w = argmin over the simplex of |sum_i w_i g_i + l g_0|^2 / 2,   d = (sum_i w_i g_i + l g_0) / (1 + l)
w goes on from the step before, by `iterations` projected gradient steps (momentum 0.5) along A w + l A 1/m. A is the
product of the gradients of two *independent* batches by the shared parameters, so that its mean is the Gram matrix of
the mean gradients: give the losses of a second batch as `validation_losses=` to `backward` (a dict, or a function that
computes them). Without, A is the Gram matrix of the one batch, whose diagonal is too large. The paper takes a third
batch for d; here d is of the batch that is trained. A is divided by the square of the mean length of a gradient, as by
the authors. Their steps of 5 or 10 overshoot, and w jumps between corners by rounding; 1/m is the longest that is sure
to converge. l = 0 is `mgda`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Heads, Rule, State, method
from excessmtl.methods.carried_weights import among_present, carried, carried_state
from excessmtl.methods.observation import Observation
from excessmtl.methods.second_batch import products
from excessmtl.solvers.simplex import project

_MOMENTUM = 0.5


@method("sdmgrad")
@dataclass(frozen=True)
class SDMGrad(Rule):
    """Near the mean gradient, the step best for the worst task, from independent batches."""

    probe: ClassVar[Probe] = Probe.SHARED
    heads: ClassVar[Heads] = "unweighted"
    uses: ClassVar[frozenset[str]] = frozenset({"validation_losses"})
    validates_heads: ClassVar[bool] = False

    pull: float = 0.3
    """l, towards the mean gradient."""
    step_size: float = 1.0
    """Of the projected gradient steps, divided by the number of tasks."""
    iterations: int = 20
    """Projected gradient steps on the weights in every step."""

    def __post_init__(self) -> None:
        if not 0 <= self.pull < float("inf"):
            raise ValueError(f"pull must be at least 0 and finite, found {self.pull}")
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise ValueError(f"iterations must be a whole number, at least 1, found {self.iterations!r}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """w = 1/m."""
        return carried_state(tasks)

    def lookahead(self, state: State) -> Tensor:
        """Nothing: the second batch is looked at where the model stands."""
        return torch.zeros_like(state["simplex"])

    def update(self, state: State, seen: Observation) -> Decision:
        """Projected gradient steps on w, then the weights of d."""
        matrix = products(seen)
        length = seen.mean_over_ok(matrix.diagonal().clamp(min=0).sqrt())
        length = torch.where(length > 0, length, 1)
        matrix = matrix / length / length  # the square might overflow
        mean = seen.ok.to(matrix) / seen.ok.sum().clamp(min=1)
        w = project(among_present(state, seen.ok), seen.ok)
        velocity = torch.zeros_like(w)
        for _ in range(self.iterations):
            velocity = _MOMENTUM * velocity + matrix @ (w + self.pull * mean)
            w = project(w - self.step_size / seen.tasks * velocity, seen.ok)
        return Decision((w + self.pull * mean) / (1 + self.pull), {"simplex": carried(state, seen.ok, w)})
