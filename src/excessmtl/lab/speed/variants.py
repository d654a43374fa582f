"""What is measured on a network: one training step (forward, backward, weighting; no optimiser) in several ways."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import excessmtl
from excessmtl.gradients.one_pass import WAYS
from excessmtl.lab.speed.clock import Clock
from excessmtl.lab.speed.networks import Problem
from excessmtl.recording.recorded import Recorded

Step = Callable[[], object]
BASELINE = "plain"


@dataclass(frozen=True)
class Variant:
    """A way to take a step: `prepare` is called once per problem and returns the step."""

    name: str
    prepare: Callable[[Problem], Step]
    needs: str | None = None
    """A package that may be missing."""

    @property
    def installed(self) -> bool:
        """Whether its package is."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None

    def step(self, problem: Problem) -> Step:
        """The whole step, from gradients that are None."""
        inner, parameters = self.prepare(problem), list(problem.parameters())

        def step() -> None:
            for parameter in parameters:
                parameter.grad = None
            inner()

        return step


def _plain(total: Callable[..., Tensor]) -> Callable[[Problem], Step]:
    """Plain PyTorch: the backward pass of the sum of the losses, as `total` adds them up."""
    return lambda problem: lambda: total(problem()[1].values()).backward()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Ours:
    """A step of this library."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    without: str = ""
    """A fast way of computing gradients that is not taken."""
    without_module: bool = False
    """Whether `shared` is a list of parameters, so that no representation is known."""

    def __call__(self, problem: Problem) -> Step:
        """The step, from losses to gradients."""
        balancer = self.balancer(problem)
        return lambda: balancer.backward(problem()[1])

    def balancer(self, problem: Problem) -> excessmtl.Balancer:
        """Fresh, for the problem."""
        shared = list(problem.trunk.parameters()) if self.without_module else problem.trunk
        engine = {"engine": Recorded(ways=WAYS - {self.without})} if self.without else {}
        return excessmtl.create(self.method, tasks=problem.tasks, shared=shared, **self.options, **engine)


def _robust_losses(problem: Problem) -> Step:
    """The default with the robust losses, by `MultiTaskLoss`."""
    criterion = excessmtl.MultiTaskLoss(problem.kinds, shared=problem.trunk)
    return lambda: criterion.backward(problem.outputs()[1], problem.targets)


def _official(problem: Problem) -> Step:
    """The recipe of the published code: a backward pass through the trunk per task, and one for the weighted sum."""
    shared = list(problem.trunk.parameters())
    tasks, size = len(problem.tasks), sum(parameter.numel() for parameter in shared)
    squares = torch.zeros(tasks, size, device=shared[0].device)
    gradients = torch.empty_like(squares)
    weights = torch.ones(tasks, device=shared[0].device)
    initial: list[Tensor] = []

    def step() -> None:
        nonlocal weights
        losses = list(problem()[1].values())
        for row, loss in enumerate(losses):
            own = torch.autograd.grad(loss, shared, retain_graph=True)
            gradients[row] = torch.cat([gradient.flatten() for gradient in own])
        squares.add_(gradients.square())
        risks = (gradients.square() / (squares + 1e-7).sqrt()).sum(1)
        if not initial:
            initial.append(risks)
        raw = weights * (0.01 * risks / initial[0]).exp()
        weights = tasks * raw / raw.sum()
        (weights * torch.stack(losses)).sum().backward()  # type: ignore[no-untyped-call]

    return step


def _torchjd(problem: Problem) -> Step:
    """TorchJD's ExcessMTL in the faster of its two settings: all tasks at once by vmap, or one by one."""
    clock = Clock(next(problem.parameters()).device)
    settings = [_torchjd_chunked(problem, chunk) for chunk in (None, 1)]
    return min(settings, key=lambda step: min(clock.seconds(step) for _ in range(4)))


def _torchjd_chunked(problem: Problem, chunk: int | None) -> Step:
    from torchjd.aggregation import ExcessMTL
    from torchjd.autojac import jac_to_grad, mtl_backward

    aggregator, shared = ExcessMTL(), list(problem.trunk.parameters())

    def step() -> None:
        z, losses = problem()
        mtl_backward(list(losses.values()), features=z, parallel_chunk_size=chunk)
        jac_to_grad(shared, aggregator)

    return step


_NAMED = (
    Variant(BASELINE, _plain(sum)),
    Variant("uniform", Ours("uniform")),
    Variant("excess", Ours("excess")),
    Variant("excess-robust", _robust_losses),
    Variant("paper", Ours("excess", {"estimator": "paper"})),
    Variant("torchjd", _torchjd, needs="torchjd"),
    Variant("official", _official),
)
USUAL = tuple(variant.name for variant in _NAMED)
_UNMEASURED = ("bayes_agg",)
"""Without labels it is another `uniform`."""
_STACKED = Variant("stacked", _plain(lambda losses: torch.stack(list(losses)).sum()))
_OTHERS = (Variant(name, Ours(name)) for name in excessmtl.list_methods() if name not in (*USUAL, *_UNMEASURED))
VARIANTS = {variant.name: variant for variant in (*_NAMED, _STACKED, *_OTHERS)}


def chosen(names: Sequence[str]) -> list[Variant]:
    """The variants of these names (none: the usual ones; "all": every one), the baseline first."""
    wanted = list(VARIANTS) if "all" in names else list(names) or list(USUAL)
    for name in wanted:
        if name not in VARIANTS:
            raise ValueError(f"methods has {name!r}; choose from {', '.join(VARIANTS)}, or all")
    for name in (name for name in names if name != "all"):
        if not VARIANTS[name].installed:
            raise ValueError(f"methods has {name!r}, which needs {VARIANTS[name].needs}; install it first")
    ordered = [VARIANTS[name] for name in dict.fromkeys([BASELINE, *wanted])]
    return [variant for variant in ordered if variant.installed]
