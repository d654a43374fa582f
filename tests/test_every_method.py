"""Every method: the battery of `check_rule`, and what the catalogue and the list of methods say of it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import excessmtl
from choices import EVERY_METHOD, METHODS, Method, rule_of
from excessmtl.methods import registry
from excessmtl.methods.catalogue import CATALOGUE
from excessmtl.testing import check_rule
from excessmtl.testing.training import TASKS, Network

VARIANTS = [Method(name, {"probe": "representation"}) for name in ("mgda", "pcgrad", "aligned_mtl")]
VARIANTS += [Method("mgda", {"normalize": "loss+"}), Method("mgda", {"solver": "frank-wolfe"})]
VARIANTS += [Method("moml", {"normalize": how}) for how in ("loss", "none")]
VARIANTS += [Method("aligned_mtl", {"size": how}) for how in ("rmse", "median")]
VARIANTS += [Method("nash", {"max_norm": None}), Method("fairgrad", {"alpha": 0.5, "max_norm": None})]
VARIANTS += [Method("dwa", {"window": 2}), Method("igb", {"base_epoch": 0, "window": 1})]
VARIANTS += [Method("stch", {"warmup_epochs": 0, "window": 1, "mu": 0.1})]
VARIANTS += [Method("excess", {"estimator": "paper", "normalize": "initial", "warmup_steps": 2})]
"""Other divisors, solvers and windows than the default's."""
# With two tasks the hull of MOML's upper gradients often holds zero: its direction, which Adam scales, is rounding.
DRAWN = [method for method in EVERY_METHOD if method.name != "moml"]


@pytest.mark.parametrize(("place", "method"), [*enumerate(EVERY_METHOD + VARIANTS)], ids=str)
def test_every_rule_passes_the_battery(place, method):
    """With two to five tasks, by turns; the oracles have three."""
    seed = 0 if method.name == "moml" else (0, 1, 2, 4)[place % 4]
    check_rule(registry()[method.name], seeds=[seed], **method.options)


@pytest.mark.parametrize("method", EVERY_METHOD, ids=str)
def test_one_task_alone(method):
    model = Network()
    balancer = method.create(model.trunk, tasks=["a"])
    for number in range(3):
        model.zero_grad()
        step = balancer.backward(model.losses(number, tasks=["a"])[1])
        assert step.weights.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in model.trunk.parameters())
    assert step.weights.abs() > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", DRAWN, ids=str)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_rule_passes_the_battery_with_any_number_of_tasks(method, seed):
    check_rule(registry()[method.name], seeds=range(seed, seed + 5), **method.options)


def test_the_methods_that_stand_for_all_ask_for_all_that_any_asks_for():
    def asked(method):
        rule = rule_of(method)
        return rule.probe, rule.per_sample, rule.gated, rule.directs

    assert {asked(method) for method in METHODS} == {asked(method) for method in EVERY_METHOD}


def test_list_methods_is_the_documented_list():
    assert excessmtl.list_methods() == [
        "excess", "uniform", "static", "gradnorm", "mgda", "groupdro", "imtl", "imtl_l", "imtl_hybrid", "moml",
        "uw", "dtp", "dwa", "rlw", "pcgrad", "cagrad", "graddrop", "nash", "uw_so", "igb", "log_loss", "gls", "stch",
        "famo", "cosmos", "pbi", "fairgrad", "upgrad", "dualproj", "aligned_mtl", "config", "gradvac", "pcd", "krum",
        "sdmgrad", "modo", "auto_lambda", "moco", "db_mtl", "trimmed_mean",
        "ldc_mtl", "autoscale", "forum", "bayes_agg",
    ]  # fmt: skip


@pytest.mark.parametrize("name", excessmtl.list_methods())
def test_the_catalogue_tells_which_methods_are_free_of_the_scale_of_a_loss(name):
    """Free means with every network; a method that is not may come near it with one."""
    cosines = []
    for seed in range(3):
        steps = []
        for scale in (1.0, 1e-3, 1e3):
            model = Network(seed, scale)
            balancer = excessmtl.create(name, tasks=TASKS, shared=model.trunk)
            for number in range(3):
                model.zero_grad()
                balancer.backward(model.losses(number)[1])
            steps.append(torch.cat([p.grad.flatten() for p in model.trunk.parameters()]))
        cosines += torch.cosine_similarity(steps[0], torch.stack(steps[1:])).tolist()
    random = name in ("rlw", "pcgrad", "graddrop", "gradvac")
    assert (not random and min(cosines) > 0.999) == CATALOGUE[name].scale_free, cosines


def test_losses_after_the_step():
    model = Network()
    balancer = excessmtl.create("famo", tasks=TASKS, shared=model.trunk)
    balancer.backward(model.losses(0)[1])
    with torch.no_grad():
        again = {**model.losses(0)[1], "b": torch.tensor(torch.nan)}
    before = balancer.state["logits"].clone()
    balancer.after_step({**again, "a": 2 * again["a"]})  # "a" has become worse, "b" is not a number
    moved = balancer.state["logits"] - before
    assert moved[0] > 0 > moved[2]
    assert moved[1] == 0
    with pytest.raises(ValueError, match="after_step is not used by 'uniform'"):
        excessmtl.create("uniform", tasks=TASKS, shared=model.trunk).after_step(again)
