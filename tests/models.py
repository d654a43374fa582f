"""What most tests share: methods, tiny models, and the gradient a step must leave behind by plain autograd."""

import copy
import json
import os
import warnings
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.one_pass import WAYS, Fastest
from excessmtl.graph.places import Probe

DEVICE = torch.device(os.environ.get("EXCESSMTL_TEST_DEVICE", "cpu"))
TASKS = ["a", "b", "c"]
FEATURES, WIDTH, BATCH = 6, 16, 8
OUTPUTS = {"a": 3, "b": 1, "c": 2}
ENGINE = None
"""Makes the engine of every balancer where a test does not say; None: the library's default."""


@dataclass(frozen=True)
class Method:
    """A method with the options that make it one of several under its name."""

    name: str
    options: dict = field(default_factory=dict)

    def __str__(self):
        return "-".join([self.name, *map(str, self.options.values())])

    def create(self, shared, tasks=TASKS, **options):
        if ENGINE is not None:
            options.setdefault("engine", ENGINE())
        return excessmtl.create(self.name, tasks=tasks, shared=shared, **self.options, **options)


EXCESS = [
    Method("excess"),
    Method("excess", {"estimator": "paper"}),
    Method("excess", {"estimator": "paper", "probe": "representation"}),
]
ROBUST, PAPER, PAPER_Z = EXCESS
UNIFORM, GRADNORM = Method("uniform"), Method("gradnorm")
EVERY_METHOD = EXCESS + [Method(name) for name in excessmtl.list_methods() if name != "excess"]
METHODS = EXCESS + [Method(name) for name in ("uniform", "rlw", "gradnorm", "mgda", "graddrop", "moco")]
"""They ask for everything that any rule can ask a step for, but inputs of its own (a test in test_every_method.py says
so), so they stand for all where a test is about the step. Tests about what a rule computes take `EVERY_METHOD`."""


class Noting(Fastest):
    """Remembers by which way the gradients of the last step were computed."""

    way = None

    def plan(self, inputs):
        plan = super().plan(inputs)
        linear = getattr(plan, "linear", None)
        one_pass = "separate heads" if linear is None else type(linear).__name__
        self.way = one_pass if plan.separate_heads else "any graph"
        return plan


ENGINES = {
    "linear heads": Noting,
    "separate heads": lambda: Fastest(ways=WAYS - {"linear heads"}),
    "reference": AnyGraph,
}
"""Engines that take one way and no other, where the graph allows it."""
_RULES = {}


def each(name, values):
    """Parametrise over `values`, by their names."""
    return pytest.mark.parametrize(name, values, ids=str)


both_forms = pytest.mark.parametrize("scalar", [False, True], ids=["backward", "scalar"])


def _wraps_selections():
    column = torch.zeros(2, 2, requires_grad=True).clone()[:, 0]
    return type(column.grad_fn.next_functions[0][0]).__name__ == "SliceBackward0"


finds_selections = pytest.mark.skipif(
    _wraps_selections(), reason="this torch, 2.8 or older, makes two nodes of z[:, i]: a slower way, the same numbers"
)


def rule_of(method):
    key = str(method)
    if key not in _RULES:
        with warnings.catch_warnings(action="ignore"):  # bayes_agg misses its layers
            _RULES[key] = method.create(nn.Linear(2, 2)).rule
    return _RULES[key]


def needs_z(method):
    return rule_of(method).probe is Probe.REPRESENTATION


def has_weights(method):
    """Whether the shared parameters get a weighted sum, which other steps and batches may have too."""
    return not (rule_of(method).gated or rule_of(method).directs)


def trunk_of(balancer):
    """What takes the backward passes through the trunk, in the fast engine."""
    return getattr(balancer.engine, "fast", balancer.engine).trunk


WITHOUT_Z = [method for method in METHODS if not needs_z(method)]
HOLDING = [method for method in METHODS if rule_of(method).probe is Probe.SHARED]
"""Methods that hold gradients back until the last micro-batch."""


class MultiTask(nn.Module):
    """A trunk and one head per task."""

    def __init__(self, trunk=None, heads=None):
        super().__init__()
        self.trunk = trunk or nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())
        self.heads = nn.ModuleDict(heads or {task: nn.Linear(WIDTH, OUTPUTS[task]) for task in TASKS})

    def forward(self, x):
        z = self.trunk(x)
        return {task: head(z) for task, head in self.heads.items()}

    def losses(self, size=BATCH):
        """Of a new batch."""
        x, targets = batch(size)
        return losses_of(self(x), targets)


def batch(size=BATCH):
    """Inputs and targets of the tasks."""
    x = torch.randn(size, FEATURES, device=DEVICE)
    return x, {task: torch.randn(size, width, device=DEVICE) for task, width in OUTPUTS.items()}


def losses_of(outputs, targets):
    return {task: mse_loss(outputs[task], targets[task]) for task in outputs}


def heads_on(model, z, targets):
    """The loss of every head at a representation."""
    return losses_of({task: head(z) for task, head in model.heads.items()}, targets)


def mlp():
    torch.manual_seed(1)
    return MultiTask().to(DEVICE)


def started(method, **options):
    """A model and its balancer."""
    model = mlp()
    return model, method.create(model.trunk, **options)


def trained(balancer, model, steps, seed=2, learning_rate=0.05, **arguments):
    """Plain training; the steps it took."""
    torch.manual_seed(seed)
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate)
    history = []
    for _ in range(steps):
        x, targets = batch()
        optimiser.zero_grad()
        history.append(balancer.backward(losses_of(model(x), targets), **arguments))
        optimiser.step()
    return history


def twins(method, shared="module", **options):
    """Two equal models with balancers, three steps into training."""
    model = mlp()
    balancer = method.create(model.trunk if shared == "module" else list(model.trunk.parameters()), **options)
    trained(balancer, model, 3)
    model.zero_grad()
    return (model, balancer), copy.deepcopy((model, balancer))


def take_step(balancer, losses, scalar=False, scaler=None, **arguments):
    """One step in either form."""
    if not scalar:
        return balancer.backward(losses, scaler=scaler, **arguments)
    value = balancer(losses, scaler=scaler, **arguments)
    (value if scaler is None else scaler.scale(value)).backward()
    return balancer.last_step


def host_state(state):
    """What a saved state says beside its buffers."""
    return json.loads(bytes(state["memory._extra_state"].tolist()))


def with_host_state(state, told):
    """The same state, saying this instead."""
    return {**state, "memory._extra_state": torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)}


def gradients(module):
    return {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


def plain_gradients(losses, parameters):
    """Task -> gradient of its loss at each parameter (None where it does not reach), by autograd alone."""
    found = {}
    for task, loss in losses.items():
        if loss is not None:
            found[task] = torch.autograd.grad(loss, parameters, torch.ones_like(loss), True, allow_unused=True)
    return found


def expected_gradients(balancer, step, plain, parameters, shared, heads=None):
    """The weights of the step on what is shared or reached by several tasks, the head policy on the rest."""
    shared_ids = {id(parameter) for parameter in shared}
    weights = dict(zip(step.tasks, step.weights.tolist(), strict=True))
    unweighted = (heads or balancer.heads) == "unweighted"
    skipped = step.skipped
    expected = []
    for j, parameter in enumerate(parameters):
        if balancer.rule.directs and id(parameter) in shared_ids:
            # No weighted sum: tests/methods/test_oracles.py has what it is.
            assert parameter.grad is None or parameter.grad.to_dense().isfinite().all()
            expected.append(None if parameter.grad is None else parameter.grad.to_dense().double())
            continue
        reached = {task: found[j] for task, found in plain.items() if found[j] is not None}
        own = id(parameter) not in shared_ids and len(reached) == 1
        terms = []
        for task, gradient in reached.items():
            multiplier = 1.0 if own and unweighted else weights[task]
            if task not in skipped:
                terms.append(multiplier * gradient.to_dense().double())
        expected.append(sum(terms) if terms else None)
    return expected


def assert_gradients(parameters, expected, rtol=1e-4, names=None):
    atol = rtol * max((float(wanted.to_dense().abs().max()) for wanted in expected if wanted is not None), default=1.0)
    for j, (parameter, wanted) in enumerate(zip(parameters, expected, strict=True)):
        found = parameter.grad
        where = f"parameter {names[j] if names else j} of shape {tuple(parameter.shape)}"
        if wanted is None:
            assert found is None or not found.to_dense().abs().any(), f"{where}: a gradient where there is none"
            continue
        assert found is not None, f"{where}: no gradient"
        assert found.dtype == parameter.dtype
        assert torch.allclose(found.to_dense().double(), wanted.to_dense(), rtol, atol), (
            f"{where}: {found} where plain autograd has {wanted}"
        )


def check_backward(balancer, losses, model, shared, *, scalar=False, rtol=1e-4, **arguments):
    """One step must add what plain autograd says to `.grad`; both walk the graph of one forward."""
    named = dict(model.named_parameters())
    parameters = [p for p in named.values() if p.requires_grad]
    names = [name for name, p in named.items() if p.requires_grad]
    shared = [p for p in (shared.parameters() if isinstance(shared, nn.Module) else shared) if p.requires_grad]
    plain = plain_gradients(losses, parameters)
    for parameter in named.values():
        parameter.grad = None
    step, heads = take_step(balancer, losses, scalar, **arguments), "weighted" if scalar else None
    assert step.skipped == ()
    assert step.weights.isfinite().all()
    if not balancer.rule.gated:
        assert_gradients(parameters, expected_gradients(balancer, step, plain, parameters, shared, heads), rtol, names)
    for parameter in named.values():
        if not parameter.requires_grad:
            assert parameter.grad is None
    return step


def snapshot(module, balancer):
    """Everything an error must leave alone."""
    return {
        "grad": gradients(module),
        "state": {key: value.clone() for key, value in balancer.state_dict().items()},
        "buffers": {name: buffer.clone() for name, buffer in module.named_buffers()},
        "random": torch.get_rng_state(),
    }


def assert_same(one, other):
    """Bit for bit: tensors, numbers and None, nested in any way."""
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
