"""Methods and engines that tests choose from, and ways to parametrise a test."""

import warnings
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

import excessmtl
from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.one_pass import WAYS, Fastest
from excessmtl.graph.places import Probe
from models import TASKS

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


ROBUST, PAPER = Method("excess"), Method("excess", {"estimator": "paper"})
PAPER_Z = Method("excess", {"estimator": "paper", "probe": "representation"})
EXCESS = [ROBUST, PAPER, PAPER_Z]
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


def trunk_of(balancer):
    """What takes the backward passes through the trunk, in the fast engine."""
    return getattr(balancer.engine, "fast", balancer.engine).trunk


HOLDING = [method for method in METHODS if rule_of(method).probe is Probe.SHARED]
"""Methods that hold gradients back until the last micro-batch."""
