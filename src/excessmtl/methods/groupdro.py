"""GroupDRO for multi-task learning: exponentiated gradient ascent on the task losses.

Sagawa et al., ICLR 2020, https://arxiv.org/abs/1911.08731 (Algorithm 1); for tasks: Michel et al. 2021.
    q_i <- q_i exp(eta (l_i + C / sqrt(n_i))),  q <- q / sum q,  step with sum_i q_i l_i
The generalisation adjustment C / sqrt(n_i) is off by default, as in the ExcessMTL experiments; the authors'
ExcessMTL code lets q sum to m, as `scale="sum"` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch

from excessmtl.methods.base import Decision, Rule, State, constant, method, per_task
from excessmtl.methods.observation import Observation
from excessmtl.solvers.multiplicative import ascend


@method("groupdro")
@dataclass(frozen=True)
class GroupDRO(Rule):
    """More weight on larger losses, multiplicatively."""

    logits: ClassVar[frozenset[str]] = frozenset({"scores"})

    step_size: float = 0.01
    """eta, how fast weights follow the losses."""
    adjustment: float = 0.0
    """C of the generalisation adjustment; needs `sizes`."""
    sizes: Mapping[str, float] | Sequence[float] | None = None
    """n_i, the number of training examples of each task."""

    def __post_init__(self) -> None:
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, found {self.step_size}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """Sizes in task order."""
        if (self.adjustment != 0) != (self.sizes is not None):
            raise ValueError("adjustment and sizes (training examples per task) go together; give both or neither")
        sizes = per_task("sizes", self.sizes, tasks, 1.0)
        if not all(size > 0 for size in sizes):
            raise ValueError(f"sizes must be positive, found {sizes}")
        return replace(self, sizes=sizes)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """log q, up to a constant: softmax(scores) are the weights."""
        return {"scores": torch.zeros(tasks)}

    def update(self, state: State, seen: Observation) -> Decision:
        """Algorithm 1, in log space."""
        assert isinstance(self.sizes, tuple)
        sizes = constant(self.sizes, seen.losses)
        gains = self.step_size * (seen.losses + self.adjustment / sizes.sqrt())
        scores = ascend(state["scores"], gains, seen.ok)
        return Decision(scores.softmax(0), {"scores": scores})
