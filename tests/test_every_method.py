"""Properties of single methods on a small network; `check_rule` in test_testing.py has those of every method."""

import pytest
import torch

import excessmtl
from excessmtl.methods.catalogue import CATALOGUE
from excessmtl.testing.training import TASKS, Network

RANDOM = ("rlw", "pcgrad", "graddrop", "gradvac")


@pytest.mark.parametrize("name", excessmtl.list_methods())
def test_the_scalar_form_gives_the_heads_their_weighted_gradient(name):
    gradients = []
    for options in ({}, {"heads": "weighted"}):
        model = Network()
        balancer = excessmtl.create(name, tasks=TASKS, shared=model.trunk, **options)
        for number in range(2):
            model.zero_grad()
            losses = model.losses(number)[1]
            balancer.backward(losses) if options else balancer(losses).backward()
        gradients.append([parameter.grad for parameter in model.heads.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_uniform_keeps_its_share_when_a_task_is_missing():
    """No renormalisation: alternating between tasks gives the right expected step."""
    model = Network()
    balancer = excessmtl.create("uniform", tasks=TASKS, shared=model.trunk)
    _, losses = model.losses(0)
    expected = torch.autograd.grad(losses["a"], model.trunk[0].weight, retain_graph=True)[0]
    balancer.backward({"a": losses["a"]})
    torch.testing.assert_close(model.trunk[0].weight.grad, expected)


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
    if name in RANDOM:
        assert not CATALOGUE[name].scale_free
        return
    found = []
    for scale in (1.0, 1e-3, 1e3):
        model = Network(2, scale)
        balancer = excessmtl.create(name, tasks=TASKS, shared=model.trunk)
        for number in range(3):
            model.zero_grad()
            balancer.backward(model.losses(number)[1])
        found.append(torch.cat([p.grad.flatten() for p in model.trunk.parameters()]))
    cosines = torch.cosine_similarity(found[0], torch.stack(found[1:]))
    assert bool((cosines > 0.999).all()) == CATALOGUE[name].scale_free, cosines


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
