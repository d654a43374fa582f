"""Compiled models: a step is the one of the uncompiled model, to rounding, whichever part is compiled and how."""

import copy
import pickle
from collections import namedtuple
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn

import excessmtl
from choices import PAPER, ROBUST, UNIFORM, both_forms, trunk_of
from models import DEVICE, FEATURES, WIDTH, MultiTask, batch, heads_on, losses_of
from steps import check_backward, gradients, take_step

# The compiler has warnings of its own; ours must not come.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:.*outside shared")]
THREE = [UNIFORM, ROBUST, PAPER]


class Trunk(nn.Module):
    """Deep enough for its compiled backward to overwrite what it has saved."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.third = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        hidden = nn.functional.gelu(self.second(hidden))
        return torch.tanh(self.third(hidden))


class Model(MultiTask):
    """Marks its representation where asked to."""

    mark = False

    def forward(self, x):
        z = self.trunk(x)
        if self.mark:
            z = excessmtl.representation(z)
        return {task: head(z) for task, head in self.heads.items()}


def model_of(sequential=False, mark=False):
    torch.manual_seed(1)
    trunk = Trunk()
    # Hooks of a container of torch.nn are compiled with it; those of a class of the user's run outside.
    model = Model(nn.Sequential(trunk, nn.Identity()) if sequential else trunk).to(DEVICE)
    model.mark = mark
    return model


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


COMPILED = Way(shared="compiled")
WAYS = [
    *(Way(compiled=part, sequential=sequential) for part in ("trunk", "in place", "whole") for sequential in (0, 1)),
    COMPILED,
    Way(shared="parameters", at=True),
    *(Way(shared=shared, compiled="whole", mark=True) for shared in ("parameters", "module")),
    Way(compiled="trunk and whole"),
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
    weights_and_gradients = []
    torch.manual_seed(2)
    for number, size in enumerate(sizes):
        x, targets = batch(size)
        outputs, arguments = forward(x)
        losses = losses_of(outputs, targets)
        optimiser.zero_grad()
        if number == 0:  # a backward that is compiled for one run overwrites what it has saved
            sum(losses.values()).backward()
        else:
            take_step(balancer, losses, scalar, **arguments)
        optimiser.step()
        weights = None if number == 0 else balancer.weights.clone()
        weights_and_gradients.append((weights, list(gradients(model).values())))
    return weights_and_gradients


def check(method, way, backend="aot_eager", **options):
    compiled, eager = (steps(method, way, one, **options) for one in (backend, None))
    torch.testing.assert_close(compiled, eager, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("method", THREE, ids=str)
def test_a_compiled_trunk(method):
    check(method, Way(sequential=True), sizes=(8, 8))


def whole_steps(method, backend, scalar):
    """Weights and parameters after some steps of a function that does all of a step."""
    torch._dynamo.reset()
    model = model_of()
    balancer = method.create(model.trunk)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(x, targets):
        optimiser.zero_grad()
        take_step(balancer, losses_of(model(x), targets), scalar)
        optimiser.step()

    run = torch.compile(step, backend=backend) if backend else step
    torch.manual_seed(2)
    for size in (8, 8, 5):
        run(*batch(size))
    assert balancer.steps == 3
    return balancer.weights.clone(), list(model.parameters())


@pytest.mark.parametrize(
    ("method", "backend"),
    [
        (ROBUST, "eager"),
        *(pytest.param(method, "eager", marks=pytest.mark.slow) for method in (PAPER, UNIFORM)),
        *(pytest.param(method, "inductor", marks=pytest.mark.slow) for method in THREE),
    ],
    ids=str,
)
@both_forms
def test_a_compiled_function_that_takes_a_whole_step(method, backend, scalar):
    """The balancer is not compiled: the compiler goes around it."""
    found, wanted = (whole_steps(method, one, scalar) for one in (backend, None))
    torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-6)


@pytest.mark.slow
@both_forms
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("method", THREE, ids=str)
def test_every_way(method, way, scalar):
    """With batches of several sizes, so that the compiler starts again in the middle of training."""
    check(method, way, scalar=scalar)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"engine": "reference"}, {"backend": "inductor"}], ids=str)
@pytest.mark.parametrize("way", [COMPILED, Way(compiled="whole"), Way(shared="parameters", at=True)], ids=str)
@pytest.mark.parametrize("method", THREE, ids=str)
def test_the_reference_engine_and_the_usual_backend(method, way, how):
    check(method, way, **how)


@pytest.mark.slow
@pytest.mark.parametrize("way", [COMPILED, Way(shared="parameters", compiled="whole", mark=True)], ids=str)
@pytest.mark.parametrize("method", THREE, ids=str)
def test_recorded_by_the_compiler(method, way, monkeypatch):
    """On a GPU every forward overwrites the outputs of the one before."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, mode="reduce-overhead", dynamic=False))
    check(method, way, "inductor", sizes=(8,) * 6)


@pytest.mark.slow
@pytest.mark.parametrize("sequential", [False, True])
def test_fullgraph(sequential):
    """With the compiled module as `shared` the graph is not broken."""
    model = model_of(sequential=sequential)
    compiled = torch.compile(model.trunk, backend="aot_eager", fullgraph=True)
    balancer = ROBUST.create(compiled)
    for trunk in (compiled, model.trunk):  # either is the shared module
        x, targets = batch()
        balancer.backward(heads_on(model, trunk(x), targets))
    assert balancer.steps == 2


@pytest.mark.slow
def test_a_balancer_made_after_the_first_forward():
    model = model_of()
    run = torch.compile(model, backend="aot_eager")
    x, targets = batch()
    run(x)
    balancer = ROBUST.create(model.trunk)
    losses = losses_of(run(x), targets)
    with pytest.raises(ValueError, match=r"before the first one of a compiled model.*excessmtl\.representation"):
        balancer.backward(losses)


@pytest.mark.slow
def test_a_compiled_trunk_inside_of_a_compiled_model():
    """torch then calls the original, which is therefore what `shared` has to be; or z is marked."""
    _, balancer, forward = prepared(ROBUST, Way(shared="compiled", compiled="trunk and whole"), "aot_eager")
    x, targets = batch()
    with pytest.raises(ValueError, match="mark it in the model"):
        balancer.backward(losses_of(forward(x)[0], targets))
    check(ROBUST, Way(shared="compiled", compiled="trunk and whole", mark=True), sizes=(8, 8))


@pytest.mark.slow
def test_several_tasks_at_once_are_not_tried():
    """`torch.vmap` cannot pass compiled code, and an attempt is not needed to find out."""
    check(PAPER, COMPILED, tasks_at_once=3, sizes=(8, 8))
    _, balancer, forward = prepared(PAPER, COMPILED, "aot_eager", tasks_at_once=3)
    x, targets = batch()
    balancer.backward(losses_of(forward(x)[0], targets))
    assert trunk_of(balancer).vmap_works


# ------------------------------------------------------------------ what a mark finds, compiled or not

Pair = namedtuple("Pair", ["low", "high"])


@dataclass
class Output:
    """As the models of a hub return them."""

    low: torch.Tensor
    high: torch.Tensor


@pytest.mark.parametrize("kind", [Pair, Output, dict], ids=lambda kind: kind.__name__)
def test_a_mark_of_tensors_inside_of_something(kind):
    model = model_of()
    balancer = ROBUST.create(list(model.trunk.parameters()))
    x, targets = batch()
    z = model.trunk(x)
    marked = excessmtl.representation(kind(low=z, high=z.exp()))
    low, high = marked.values() if kind is dict else (marked.low, marked.high)
    outputs = {task: head(low if task == "a" else high) for task, head in model.heads.items()}
    check_backward(balancer, losses_of(outputs, targets), model, model.trunk)


def test_a_mark_is_found_before_the_output_of_the_module():
    states = []
    for marked in (True, False):
        model = model_of()
        balancer = ROBUST.create(model.trunk)
        torch.manual_seed(3)
        x, targets = batch()
        z = model.trunk(x) * 2
        if marked:
            z = excessmtl.representation(z)
        balancer.backward(heads_on(model, z, targets), **({} if marked else {"at": z}))
        states.append(dict(balancer.state))
    torch.testing.assert_close(*states)


def test_at_goes_before_a_mark():
    model = model_of(mark=True)
    balancer = ROBUST.create(list(model.trunk.parameters()))
    x, targets = batch()
    with pytest.raises(ValueError, match="at does not hold the whole representation"):
        balancer.backward(losses_of(model(x), targets), at=model.trunk(x))


def test_a_mark_of_something_else():
    """Without a graph there is nothing to mark, and what holds no tensor is returned as it is."""
    with torch.no_grad():
        z = torch.ones(2, requires_grad=True)
    assert excessmtl.representation(z) is z
    assert excessmtl.representation("text") == "text"
    model = model_of()
    balancer = ROBUST.create(list(model.trunk.parameters()))
    with pytest.raises(ValueError, match=r"shared is a list of parameters; pass it as at=z, mark it"):
        balancer.backward(model.losses())


@pytest.mark.parametrize("how", ["copied", "pickled"])
def test_a_copy_of_a_compiled_model(how):
    """Model and balancer that are copied together belong together."""
    model, balancer, _ = prepared(ROBUST, Way(), "eager")
    pair = nn.ModuleDict({"model": model, "balancer": balancer})
    if how == "pickled":
        model.trunk = model.trunk._orig_mod  # torch does not pickle what it has compiled
        pair = pickle.loads(pickle.dumps(nn.ModuleDict({"model": model, "balancer": ROBUST.create(model.trunk)})))
    else:
        pair = copy.deepcopy(pair)
    x, targets = batch()
    model.zero_grad()
    pair["balancer"].backward(losses_of(pair["model"](x), targets))
    assert all(parameter.grad is not None for parameter in pair["model"].parameters())
    assert all(parameter.grad is None for parameter in model.parameters())
