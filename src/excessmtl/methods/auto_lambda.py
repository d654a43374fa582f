"""Auto-Lambda: weights that lower the validation losses of the primary tasks, one look ahead.

Liu et al., TMLR 2022, https://arxiv.org/abs/2202.03091. With one inner step theta' = theta - eta sum_i lambda_i grad
l_i:
    lambda <- Adam(lambda, grad_lambda sum over primary tasks j of l_j^val(theta'(lambda)))
    d l_j^val / d lambda_i = -eta g_j^val(theta') . g_i^train(theta)
and the model takes a step with the weights lambda, which start at 0.1. The products are computed as they are; the
authors approximate them by finite differences of the gradients. Weights below 0 are set to 0: they would train a task
backwards. The rate of Adam on lambda is 1e-3, as LibMTL has it for such methods; the authors' is 1e-4 on NYUv2 and 3e-4
on CIFAR-100, for longer training: at 1e-4 lambda moves by about 0.1 at most in a thousand steps.

Give `validation_losses=` to `backward`: a function (called with the parameters moved to theta') or a dict of losses at
theta, the first-order form. Without it the training losses serve. The total is learned, so `scale="sum"` and `"mean"`
leave it as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Rule, State, constant, method
from excessmtl.methods.observation import Observation
from excessmtl.methods.second_batch import products
from excessmtl.solvers.adam import adam_state, adam_step

_START = 0.1


@method("auto_lambda")
@dataclass(frozen=True)
class AutoLambda(Rule):
    """Weights that lower the validation losses of the primary tasks."""

    uses_host: ClassVar[bool] = True
    simplex: ClassVar[bool] = False
    probe: ClassVar[Probe] = Probe.SHARED
    uses: ClassVar[frozenset[str]] = frozenset({"validation_losses"})

    primary: Sequence[str | int] | None = None
    """The tasks whose validation losses count; None: all."""
    inner_step: float = 0.1
    """eta, the length of the look-ahead: the learning rate of the model."""
    step_size: float = 1e-3
    """Of Adam on lambda."""

    def __post_init__(self) -> None:
        for name in ("inner_step", "step_size"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, found {getattr(self, name)}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """One number per task: 1 where it is primary."""
        wanted = tuple(tasks) if self.primary is None else tuple(self.primary)
        unknown = [name for name in wanted if name not in tasks]
        if unknown or not wanted:
            raise ValueError(f"primary must name some of the tasks {list(tasks)}, found {self.primary!r}")
        return replace(self, primary=tuple(int(task in wanted) for task in tasks))

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """lambda = 0.1, and its optimiser."""
        return {"lambdas": torch.full((tasks,), _START), **adam_state(tasks)}

    def prior(self, tasks: int) -> Tensor:
        """0.1 each."""
        return torch.full((tasks,), _START)

    def lookahead(self, state: State) -> Tensor:
        """eta lambda."""
        return self.inner_step * state["lambdas"]

    def update(self, state: State, seen: Observation) -> Decision:
        """The upper-level step on lambda; tasks that took no part neither move nor are moved by."""
        assert self.primary is not None
        cross = products(seen)
        primary = constant([float(is_primary) for is_primary in self.primary], cross)
        gradient = -self.inner_step * (primary @ cross)
        lambdas, optimiser = adam_step(state["lambdas"], gradient, state, seen.ok, self.step_size)
        lambdas = lambdas.clamp(min=0)
        return Decision(lambdas, {"lambdas": lambdas, **optimiser})
