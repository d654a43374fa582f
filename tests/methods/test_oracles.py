"""Every method against its paper's equations, written down once more in `oracles/`: twelve steps of plain training.

A model of two shared layers and three heads is trained through the public interface, and beside it by the oracle.
Weights, shared parameters and heads must agree after every step. The oracles share no code with the library.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from oracles import bayesian, by_losses, excess
from oracles import by_gradients as g
from oracles import by_second_batch as second
from oracles.by_gradients import from_rows
from oracles.by_losses import trained_on
from oracles.plain import EQUAL, PER_EPOCH, RATE, STEPS, TASKS, Plain, losses_at, make_batch, make_model
from torch.nn.utils import parameters_to_vector

import excessmtl

INDICATORS = np.random.default_rng(0).uniform(0.2, 0.9, (STEPS, 3))


@dataclass(frozen=True)
class Case:
    """A method with options, and its oracle."""

    oracle: Callable[..., Any]
    given: tuple = ()
    """Further arguments of the oracle, beside the steps."""
    options: dict = field(default_factory=dict)
    extra: str | None = None
    """What the step or the loop hands over beside the losses."""
    scale: Any = 1
    """1 leaves the multipliers as published."""
    factor: float = 1.0
    """What another scale multiplies them by."""
    keywords: dict = field(default_factory=dict)
    """Further arguments of the oracle, by name."""
    whole: bool = False
    """Whether all parameters are shared, heads included."""


def in_three_forms(oracle, *given, **options):
    """A second batch may be missing, or come as losses, or as a function."""
    return [Case(oracle, (*given, form), options, form) for form in (None, "dict", "function")]


PAPER, INITIAL = {"estimator": "paper", "step_size": 0.5}, {"normalize": "initial"}
OTHER_EXCESS = {"trust": 2.0, "need": 0.5, "first_steps": 4, "decay": 0.8, "damping": 0.01, "cap": 1.2}
LIKELIHOODS = {"likelihoods": (False, True, True)}
WEIGHTED, AT_Z = {"weighted": True}, {"at_z": True}
LOWER = (0.05, 0.02, 0.1)
LOOKS_AHEAD = {"inner_step": 0.3, "step_size": 0.02}
ORACLES = {
    "excess": [
        Case(excess.robust),
        Case(excess.robust, scale="sum", factor=3),
        Case(excess.robust, keywords=OTHER_EXCESS, options=OTHER_EXCESS),
        Case(excess.robust, keywords=LIKELIHOODS, options=LIKELIHOODS),
        Case(excess.paper, (0.01,), {"estimator": "paper"}, scale="mean"),
        Case(excess.paper, (0.5, 0), {**PAPER, **INITIAL}),
        Case(excess.paper, (0.5, 3), {**PAPER, **INITIAL, "warmup_steps": 3}),
        Case(excess.paper, (0.5,), {**PAPER, "probe": "representation"}, keywords=AT_Z),
    ],
    "uniform": [Case(trained_on, (by_losses.static,)), Case(trained_on, (by_losses.static, EQUAL), scale="sum")],
    "static": [
        Case(trained_on, (by_losses.static, EQUAL)),
        Case(trained_on, (by_losses.static, [0.5, 2, 1]), {"weights": {"a": 0.5, "c": 1, "b": 2}}, scale="sum"),
    ],
    "gradnorm": [
        Case(g.gradnorm, (1.5,), scale="sum"),
        Case(g.gradnorm, (0.12, 0.05), {"alpha": 0.12, "step_size": 0.05}),
        Case(g.gradnorm, (1.5, 0.025, [1.0, 2.0, 0.5]), {"initial_losses": [1.0, 2.0, 0.5]}),
    ],
    "mgda": [
        *(Case(from_rows, (g.mgda, way), {"normalize": way}) for way in ("none", "l2", "loss", "loss+")),
        Case(from_rows, (g.mgda,), scale="sum", factor=3),
        Case(from_rows, (g.mgda,), {"probe": "representation"}, keywords=AT_Z),
    ],
    "groupdro": [
        Case(by_losses.groupdro, (0.5,), {"step_size": 0.5}),
        Case(by_losses.groupdro, (0.5,), {"step_size": 0.5}, scale="sum", factor=3),
        Case(by_losses.groupdro, (0.01, [4.5, 0.9, 1.8]), {"adjustment": 9.0, "sizes": [4, 100, 25]}),
    ],
    "imtl": [Case(from_rows, (g.imtl_g,)), Case(from_rows, (g.imtl_g,), {"probe": "representation"}, keywords=AT_Z)],
    "imtl_l": [Case(by_losses.imtl_l)],
    "imtl_hybrid": [Case(g.imtl_hybrid)],
    "moml": [
        *in_three_forms(second.moml, 0.3, 0.02, "l2", **LOOKS_AHEAD),
        Case(second.moml, (0.1, 1e-3, "loss", "dict"), {"normalize": "loss"}, "dict"),
    ],
    "uw": [
        Case(by_losses.uw, ([],)),
        Case(by_losses.uw, ([0],), {"kinds": ["classification", "regression", "regression"]}),
    ],
    "dtp": [
        Case(by_losses.dtp, (0.1, 1.0, lambda seen: INDICATORS[seen.number]), extra="metrics"),
        Case(by_losses.dtp, (0.3, [0.5, 1, 2], lambda seen: np.exp(-seen.losses)), {"rate": 0.3, "gamma": [0.5, 1, 2]}),
    ],
    "dwa": [Case(by_losses.dwa)],
    "rlw": [Case(by_losses.rlw, (0,)), Case(by_losses.rlw, (8,), {"seed": 8}, scale="sum", factor=3)],
    "pcgrad": [Case(g.pcgrad)],
    "cagrad": [
        Case(from_rows, (g.cagrad, 0.4, 1)),
        Case(from_rows, (g.cagrad, 0.9, 0), {"c": 0.9, "rescale": 0}),
        Case(from_rows, (g.cagrad, 0.4, 2), {"rescale": 2}, scale=3, factor=3),
    ],
    "graddrop": [Case(g.graddrop, (0, 0)), Case(g.graddrop, (0.3, 5), {"leak": 0.3, "seed": 5})],
    "nash": [
        Case(from_rows, (g.clipped,), keywords=WEIGHTED),
        Case(from_rows, (g.bargaining, 1), {"max_norm": None}, keywords=WEIGHTED),
    ],
    "uw_so": [Case(by_losses.uw_so, (1,)), Case(by_losses.uw_so, (0.3,), {"temperature": 0.3})],
    "igb": [Case(by_losses.igb, (1,)), Case(by_losses.igb, (0,), {"base_epoch": 0})],
    "log_loss": [Case(trained_on, (by_losses.log_loss,))],
    "gls": [Case(trained_on, (by_losses.gls,))],
    "stch": [Case(by_losses.stch, (4, 1.0)), Case(by_losses.stch, (1, 0.3), {"warmup_epochs": 1, "mu": 0.3})],
    "famo": [
        Case(by_losses.famo, (True,), extra="after_step"),
        Case(by_losses.famo, (False,)),
        Case(by_losses.famo, (True, 0.2, LOWER), {"decay": 0.2, "lower": LOWER}, "after_step"),
    ],
    "cosmos": [
        Case(trained_on, (by_losses.cosmos, [1, 1, 1], 1)),
        Case(trained_on, (by_losses.cosmos, [1, 2, 4], 0.4), {"preference": [1, 2, 4], "penalty": 0.4}),
    ],
    "pbi": [
        Case(trained_on, (by_losses.pbi, [1, 1, 1], 0.5)),
        Case(trained_on, (by_losses.pbi, [1, 2, 4], 0.2), {"preference": [1, 2, 4], "theta": 0.2}),
    ],
    "fairgrad": [
        Case(from_rows, (g.clipped, 3)),
        Case(from_rows, (g.bargaining, 0.5), {"alpha": 0.5, "max_norm": None}),
        Case(from_rows, (g.bargaining, 2), {"alpha": 2, "max_norm": None, "heads": "weighted"}, keywords=WEIGHTED),
    ],
    "upgrad": [Case(from_rows, (g.upgrad,))],
    "dualproj": [Case(from_rows, (g.dualproj,))],
    "aligned_mtl": [
        *(Case(from_rows, (g.aligned, size), {"size": size}) for size in ("min", "median", "rmse")),
        Case(from_rows, (g.aligned, "min"), {"probe": "representation"}, keywords=AT_Z),
    ],
    "config": [Case(from_rows, (g.config,))],
    "gradvac": [Case(g.gradvac, (0.01,)), Case(g.gradvac, (0.5,), {"rate": 0.5})],
    "pcd": [Case(g.pcd, (0, 0.02, 0.999)), Case(g.pcd, (2, 0.5, 0.9), {"primary": "c", "tau": 0.5, "decay": 0.9})],
    "krum": [Case(from_rows, (g.krum, 0, number), {"bad": 0, "selected": number}) for number in (1, 2)],
    "sdmgrad": in_three_forms(second.sdmgrad, 0.3, 1 / 3, 20),
    "modo": in_three_forms(second.modo, 0.2, 0.1, step_size=0.2),
    "auto_lambda": [
        *in_three_forms(second.auto_lambda, 0.3, 0.02, [0, 1, 2], **LOOKS_AHEAD),
        Case(second.auto_lambda, (0.1, 1e-3, [1], "dict"), {"primary": ["b"]}, "dict"),
    ],
    "moco": [
        Case(g.moco),
        Case(g.moco, (0.9, 0.3, 0.2, 0.5), {"tracking": 0.9, "step_size": 0.3, "power": 0.2, "rho": 0.5}),
    ],
    "db_mtl": [Case(g.db_mtl, (0.9, 0)), Case(g.db_mtl, (0.5, 1), {"decay": 0.5, "power": 1.0})],
    "trimmed_mean": [Case(g.trimmed_mean)],
    "ldc_mtl": [
        Case(by_losses.ldc_mtl, (0.1, True), {"step_size": 0.05}),
        Case(by_losses.ldc_mtl, (0.4, False), {"penalty": 0.4, "step_size": 0.05, "compare": "plain"}),
    ],
    "autoscale": [Case(g.autoscale, (2, 3), {"windows": 2, "window": 3})],
    "forum": [
        Case(second.forum, ([0, 1, 2], [0, 1, 2], 0.1), {"step_size": 0.05}, whole=True),
        Case(second.forum, ([1, 2], [0], 0.9), {"validation": ["b", "c"], "rho": 0.9}, whole=True),
        Case(second.forum, ([2], [0, 1], 0.9), {"validation": ["c"], "rho": 0.9, "step_size": 0.05}, whole=True),
    ],
    "bayes_agg": [
        Case(bayesian.bayes_agg, (0.005, (0.1, 0.3, 0.3), 512, 1), extra="targets"),
        Case(
            bayesian.bayes_agg,
            (0.5, (0.7,) * 3, 20, 2),
            {"prior_variance": 0.5, "power": 0.7, "samples": 20, "warmup_epochs": 2, "seed": 4},
            "targets",
            keywords={"seed": 4},
        ),
    ],
}
CASES = [
    pytest.param(name, case, id="-".join(str(part) for part in (name, *case.options.values(), case.extra, case.scale)))
    for name, cases in ORACLES.items()
    for case in cases
]


def test_every_method_has_an_oracle():
    assert set(ORACLES) == set(excessmtl.list_methods())


def trained(name, case, model):
    """Twelve steps through the public interface: the weights of each."""
    shared = list(model.parameters()) if case.whole else model["trunk"]
    layers = {"layers": model["heads"], "kinds": bayesian.KINDS} if case.extra == "targets" else {}
    balancer = excessmtl.create(name, tasks=TASKS, shared=shared, scale=case.scale, **case.options, **layers)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)

    def losses(batch):
        z = model["trunk"](batch[0])
        return dict(zip(TASKS, losses_at([head(z) for head in model["heads"].values()], batch[1]), strict=True))

    for number in range(STEPS):
        if number and number % PER_EPOCH == 0:
            balancer.end_epoch()
        batch, second = make_batch(number), make_batch(number, second=True)
        more = {
            "dict": lambda second=second: {"validation_losses": losses(second)},
            "function": lambda second=second: {"validation_losses": lambda: losses(second)},
            "metrics": lambda number=number: {"metrics": dict(zip(TASKS, INDICATORS[number], strict=True))},
            "targets": lambda batch=batch: {"targets": dict(zip(TASKS, batch[1], strict=True))},
        }.get(case.extra, dict)
        optimiser.zero_grad()
        step = balancer.backward(losses(batch), **more())
        optimiser.step()
        if case.extra == "after_step":
            with torch.no_grad():
                balancer.after_step(losses(batch))
        yield step.weights.double().numpy()


@pytest.mark.parametrize(("name", "case"), CASES)
def test_trains_as_the_paper_says(name, case):
    model = make_model()
    heads = [parameters_to_vector(head.parameters()).detach() for head in model["heads"].values()]
    plain = Plain(parameters_to_vector(model["trunk"].parameters()).detach(), heads)
    oracle, fitting = case.oracle(plain.steps(), *case.given, **case.keywords), None
    for number, weights in enumerate(trained(name, case, model)):
        decisions = oracle.send(fitting)
        decisions = decisions if isinstance(decisions, list) else [decisions]
        decisions = [_scaled(case.factor, *decision) for decision in decisions]
        errors = [np.abs(weights - one[0]).max() for one in decisions]
        fitting = [place for place, error in enumerate(errors) if error < 2e-5 * np.abs(weights).max()]
        assert fitting, f"step {number}: weights {weights} in place of {[one[0] for one in decisions]}"
        plain.shared, plain.heads = plain.moved(*decisions[int(np.argmin(errors))])
        for part, expected in (("trunk", plain.shared), ("heads", torch.cat(plain.heads))):
            error = (parameters_to_vector(model[part].parameters()) - expected).abs().max()
            assert error < 2e-6, f"step {number}: {part} are off by {error}"


def _scaled(factor, weights, heads, direction=None):
    """Heads that are weighted are multiplied with the weights."""
    own = heads if heads is EQUAL else factor * np.asarray(heads)
    return factor * np.asarray(weights), own, None if direction is None else factor * direction
