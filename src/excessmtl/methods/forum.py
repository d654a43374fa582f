"""FORUM: all validation losses go down, while the model stays at a minimum of the weighted training losses.

Ye, Lin, Cao, Zhang & Tsang, "A First-Order Multi-Gradient Algorithm for Multi-Objective Bi-Level Optimization", ECAI
2024, https://arxiv.org/abs/2401.09257. Upper level: the validation losses F_i. Lower level: f = sum_j s_j l_j of the
training losses, s = softmax(alpha). With omega the parameters, omega~ these after some gradient steps on f, and
q = f(omega, alpha) - f(omega~, alpha), omega and alpha move along
    d = sum_i lambda_i grad F_i + nu grad q,   nu = max(rho - grad q . sum_i lambda_i grad F_i / |grad q|^2, 0)
so that grad q . d >= rho |grad q|^2: q, which is zero at a minimum of f, goes down in every step. lambda follows the
point of the simplex that minimises |d|^2 / 2 - nu rho |grad q|^2, by lambda <- lambda + t^-power (point - lambda).

Give the validation losses of a step as tasks of their own, and say which they are:
    create("forum", tasks=["a", "b", "a_val", "b_val"], shared=model, validation=["a_val", "b_val"])
with the whole model as `shared`, as omega is all of it. Without `validation` the losses serve as both. Training losses
get the multipliers nu s_j, validation losses lambda_i; their total is decided by the method, so `scale="sum"` and
`"mean"` leave it as it is.

The equations are those of the authors' program, with four differences. f(omega~) is taken to first order, l_j(omega) -
l_j(omega~) = eta grad l_j . grad f with eta the sum of the inner step sizes; the authors take five steps of 0.1
and compute the losses again. The gradients of F_i are not brought to length one. t counts steps, not epochs. And the
last term of what lambda minimises is twice theirs, or nu would not be its minimiser. alpha moves by Adam, as theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Rule, State, constant, method
from excessmtl.methods.carried_weights import among_present, carried
from excessmtl.methods.observation import Observation
from excessmtl.solvers.adam import adam_state, adam_step
from excessmtl.solvers.conditioning import normalized, precise
from excessmtl.solvers.interior_point import minimize

_STATIONARY = 1e-6
"""Below this part of the training gradients' squares, |grad f|^2 is rounding: f is at a minimum."""


@method("forum")
@dataclass(frozen=True)
class FORUM(Rule):
    """All validation losses go down, at a minimum of the weighted training losses."""

    probe: ClassVar[Probe] = Probe.SHARED
    simplex: ClassVar[bool] = False
    whole_model: ClassVar[bool] = True
    logits: ClassVar[frozenset[str]] = frozenset({"logits"})

    validation: Sequence[str | int] | None = None
    """The tasks that are validation losses; the others are training losses. None: every loss is both."""
    rho: float = 0.1
    """How fast q goes down, at least."""
    inner_step: float = 0.5
    """eta, the sum of the inner step sizes."""
    step_size: float = 1e-3
    """Of Adam on alpha."""
    power: float = 0.75
    """How fast the steps of lambda become smaller."""

    def __post_init__(self) -> None:
        for name in ("rho", "inner_step", "step_size"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be positive and finite, found {getattr(self, name)}")
        if not 0 <= self.power < float("inf"):
            raise ValueError(f"power must be at least 0 and finite, found {self.power}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """One number per task: 1 where it is a validation loss."""
        if self.validation is None:
            return self
        wanted = tuple(self.validation)
        unknown = [name for name in wanted if name not in tasks]
        if isinstance(self.validation, str) or unknown or not wanted or len(set(wanted)) == len(tasks):
            raise ValueError(
                f"validation must be a list of some of the tasks {list(tasks)}, not all, found {self.validation!r}"
            )
        return replace(self, validation=tuple(int(task in wanted) for task in tasks))

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """alpha = 0 and its optimiser, lambda = 1/m."""
        state = {"logits": torch.zeros(tasks), "simplex": self.prior(tasks), "steps": torch.zeros(())}
        return {**state, **adam_state(tasks)}

    def prior(self, tasks: int) -> Tensor:
        """lambda = 1/m."""
        if self.validation is None:
            return torch.full((tasks,), 1 / tasks)
        upper = torch.zeros(tasks)
        upper[[place for place, is_validation in enumerate(self.validation) if is_validation]] = 1
        return upper / upper.sum()

    def update(self, state: State, seen: Observation) -> Decision:
        """lambda, nu and the step on alpha; losses that are not there neither move nor are moved by."""
        upper, lower = self._levels(seen.ok)
        s = torch.where(lower, state["logits"], -torch.inf).softmax(0)
        s = torch.where(lower, precise(s), 0)
        gram = torch.where(seen.ok[:, None] & seen.ok, precise(seen.gram), 0)
        along = gram @ s  # products with grad f
        slope = self.inner_step * s * (along - s @ along)  # of q by alpha
        square = (s @ along).clamp(min=0) + slope.square().sum()
        moves = s @ along > _STATIONARY * (s @ gram.diagonal())
        square = torch.where(moves, square, 0)
        point = self._point(gram, along, square, upper)
        steps = state["steps"] + upper.any()
        before = among_present(state, upper)
        shares = before + steps.clamp(min=1) ** -self.power * (point.to(before) - before)
        simplex = carried(state, upper, shares)
        weights = torch.where(upper, simplex, 0)
        nu = (self.rho - along @ precise(weights) / torch.where(moves, square, 1)).clamp(min=0)
        nu = torch.where(moves, nu, 0)
        gradient = (nu * slope).to(seen.gram.dtype)
        logits, optimiser = adam_step(state["logits"], gradient, state, lower, self.step_size)
        new = {"logits": logits, "simplex": simplex, "steps": steps, **optimiser}
        return Decision(weights + (nu * s).to(weights.dtype), new)

    def _levels(self, ok: Tensor) -> tuple[Tensor, Tensor]:
        """[m] bool: the validation losses and the training losses that are there."""
        if self.validation is None:
            return ok, ok
        upper = constant([float(is_validation) for is_validation in self.validation], ok) > 0
        return ok & upper, ok & ~upper

    def _point(self, gram: Tensor, along: Tensor, square: Tensor, upper: Tensor) -> Tensor:
        """argmin over the simplex of |d|^2 / 2 - nu rho |grad q|^2, where nu is that of lambda.

        `along`: products of the gradients with grad q, whose square is `square`. In terms of unit gradients u_i, with
        k_i = u_i . grad q / |grad q|, the slope is C x + max(rho |grad q| - k.x, 0) k.
        """
        cosines, lengths, active = normalized(gram, upper)
        shortest = torch.where(active, lengths, torch.inf).min()
        shortest = torch.where(shortest.isfinite(), shortest, 1)
        length = square.sqrt()
        k = torch.where(active & (length > 0), along / lengths / torch.where(length > 0, length, 1), 0).clamp(-1, 1)
        wanted = self.rho * length / shortest
        identity = torch.eye(len(k), dtype=k.dtype, device=k.device)

        def derivatives(x: Tensor) -> tuple[Tensor, Tensor]:
            short = wanted - k @ x
            held = torch.where(short > 0, k, 0)
            hessian = cosines - held[:, None] * held + torch.finfo(torch.float32).eps * identity
            return cosines @ x + short * held, hessian

        prices = torch.where(active, shortest / lengths, 0)
        weights = prices * minimize(derivatives, prices, active)
        # A zero gradient: no direction lowers all validation losses, and only the lower level moves.
        weights = torch.where((upper & ~active).any(), (upper & ~active).to(weights), weights)
        return weights / weights.sum().clamp(min=torch.finfo(torch.float32).tiny)
