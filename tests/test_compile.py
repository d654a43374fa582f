"""Compiled models: a step is the one of the uncompiled model, to rounding, whichever part is compiled and how."""

import warnings
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import excessmtl
from models import (
    DEVICE,
    FEATURES,
    OUTPUTS,
    PAPER,
    ROBUST,
    TASKS,
    UNIFORM,
    WIDTH,
    Method,
    batch,
    gradients,
    losses_of,
)

THREE = [UNIFORM, ROBUST, PAPER]


class Trunk(nn.Module):
    """Deep enough for its compiled backward to overwrite what it has saved."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        hidden = nn.functional.gelu(self.second(hidden))
        return torch.tanh(self.third(hidden))


class Model(nn.Module):
    """Keeps z for `at=`; marks it where asked to."""

    def __init__(self, sequential=False, mark=False):
        super().__init__()
        trunk = Trunk()
        # Hooks of a container of torch.nn are compiled with it; those of a class of the user's run outside.
        self.trunk = nn.Sequential(trunk, nn.Identity()) if sequential else trunk
        self.heads = nn.ModuleDict({task: nn.Linear(WIDTH, OUTPUTS[task]) for task in TASKS})
        self.mark = mark

    def forward(self, x):
        z = self.trunk(x)
        if self.mark:
            z = excessmtl.representation(z)
        return {task: head(z) for task, head in self.heads.items()}


def model_of(**options):
    torch.manual_seed(1)
    return Model(**options).to(DEVICE)


@dataclass
class Way:
    """How a model is compiled, and what the balancer is given."""

    shared: str = "module"
    compiled: str = "trunk"
    sequential: bool = False
    mark: bool = False
    at: bool = False

    def __str__(self):
        flags = [name for name in ("sequential", "mark", "at") if getattr(self, name)]
        return "-".join([self.shared, self.compiled, *flags]).replace(" ", "_")


WAYS = [
    Way(sequential=sequential, **options)
    for sequential in (False, True)
    for options in (
        {"compiled": "trunk"},
        {"shared": "compiled", "compiled": "trunk"},
        {"compiled": "in place"},
        {"compiled": "whole"},
    )
] + [
    Way(shared="parameters", at=True),
    Way(shared="parameters", compiled="whole", mark=True),
    Way(shared="module", compiled="whole", mark=True),
    Way(shared="parameters", compiled="trunk", mark=True),
    Way(shared="compiled", compiled="trunk and whole"),
]


def prepared(method, way, backend, **options):
    """The balancer, and a function from a batch of inputs to (outputs, arguments of the step)."""
    model = model_of(sequential=way.sequential, mark=way.mark)
    trunk = model.trunk
    if backend is not None and "trunk" in way.compiled:
        model.trunk = torch.compile(trunk, backend=backend)
    if backend is not None and way.compiled == "in place":
        trunk.compile(backend=backend)
    run = torch.compile(model, backend=backend) if backend is not None and "whole" in way.compiled else model
    shared = {"module": trunk, "compiled": model.trunk, "parameters": list(trunk.parameters())}[way.shared]
    balancer = method.create(shared, **options)

    def forward(x):
        if not way.at:
            return run(x), {}
        z = model.trunk(x)
        return {task: head(z) for task, head in model.heads.items()}, {"at": z}

    return model, balancer, forward


def steps(method, way, backend, scalar=False, sizes=(8, 8, 5, 8, 11), **options):
    """Weights and gradients of some steps. Names of parameters are as in the uncompiled model."""
    torch._dynamo.reset()
    model, balancer, forward = prepared(method, way, backend, **options)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    found = []
    torch.manual_seed(2)
    for number, size in enumerate(sizes):
        x, targets = batch(size)
        outputs, arguments = forward(x)
        losses = losses_of(outputs, targets)
        optimiser.zero_grad()
        if number == 0:  # a backward that is compiled for one run overwrites what it has saved
            sum(losses.values()).backward()
        elif scalar:
            balancer(losses, **arguments).backward()
        else:
            balancer.backward(losses, **arguments)
        optimiser.step()
        weights = None if number == 0 else balancer.weights.clone()
        found.append((weights, list(gradients(model).values())))
    return found


def check(method, way, backend="aot_eager", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler's own
        torch.testing.assert_close(
            steps(method, way, backend, **options), steps(method, way, None, **options), rtol=2e-4, atol=2e-6
        )


@pytest.mark.parametrize("method", THREE, ids=str)
def test_a_compiled_trunk(method):
    check(method, Way(sequential=True), sizes=(8, 8))


@pytest.mark.slow
@pytest.mark.parametrize("scalar", [False, True], ids=["backward", "scalar"])
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("method", [*THREE, Method("gradnorm"), Method("uniform", {"heads": "unweighted"})], ids=str)
def test_every_way(method, way, scalar):
    check(method, way, scalar=scalar)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("method", THREE, ids=str)
def test_every_way_with_the_reference_engine(method, way):
    check(method, way, engine="reference")
