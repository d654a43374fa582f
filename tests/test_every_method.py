"""Properties every registered method must have, whatever its rule."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import excessmtl
from excessmtl.methods.catalogue import CATALOGUE

METHODS = [(name, {}) for name in excessmtl.list_methods()]
METHODS += [("excess", {"estimator": "paper"}), ("excess", {"estimator": "paper", "probe": "representation"})]
METHODS += [(name, {"probe": "representation"}) for name in ("mgda", "imtl", "imtl_hybrid", "pcgrad", "cagrad", "nash")]
METHODS += [("aligned_mtl", {"probe": "representation"})]
RANDOM = ("rlw", "pcgrad", "graddrop", "gradvac")
EVERY = pytest.mark.parametrize(("name", "options"), METHODS, ids=lambda value: str(value) if value else "")
TASKS = ("a", "b", "c")


class Model(nn.Module):
    def __init__(self, seed, scale=1.0):
        super().__init__()
        torch.manual_seed(seed)
        self.trunk = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 8), nn.Tanh())
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 3), "b": nn.Linear(8, 1), "c": nn.Linear(8, 2)})
        self.scale = scale

    def losses(self, seed, batch=6):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(batch, 5, generator=generator)
        z = self.trunk(x)
        out = {name: head(z) for name, head in self.heads.items()}
        labels = torch.randint(0, 3, (batch,), generator=generator)
        return z, {
            "a": cross_entropy(out["a"], labels),
            "b": self.scale * mse_loss(out["b"], torch.randn(batch, 1, generator=generator)),
            "c": mse_loss(out["c"], torch.randn(batch, 2, generator=generator)),
        }


def gradients(module):
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def assert_same(first, second, **tolerance):
    for one, other in zip(first, second, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, **tolerance)


def run(name, options, model, steps, tasks=TASKS, use_at=False, scalar=False, seed=0):
    balancer = excessmtl.create(name, tasks=tasks, shared=model.trunk, **options)
    for step in range(steps):
        model.zero_grad()
        z, losses = model.losses(seed + step)
        at = z if use_at else None
        if scalar:
            balancer(losses, at=at).backward()
            result = balancer.last_step
        else:
            result = balancer.backward(losses, at=at)
    return balancer, result


seeds = st.integers(0, 10_000)


@EVERY
@settings(max_examples=3, deadline=None)
@given(seed=seeds, scale=st.sampled_from([1e-3, 1.0, 1e4]))
def test_weights_are_finite_and_on_the_simplex_where_promised(name, options, seed, scale):
    balancer, result = run(name, {**options, "scale": "mean"}, Model(seed, scale), steps=3, seed=seed)
    assert result.weights.isfinite().all()
    assert result.weights.shape == (3,)
    if balancer.rule.simplex:
        assert (result.weights >= 0).all()
        assert result.weights.sum() == pytest.approx(1, abs=1e-5)


@EVERY
@settings(max_examples=2, deadline=None)
@given(seed=seeds)
def test_the_order_of_tasks_does_not_matter(name, options, seed):
    if name in RANDOM:
        pytest.skip("draws are made in task order; the rule itself is tested with fixed draws in tests/methods")
    options = {**options, "primary": "b"} if name == "pcd" else options
    first, second = Model(seed), Model(seed)
    _, forwards = run(name, options, first, steps=3, seed=seed)
    _, backwards = run(name, options, second, steps=3, tasks=TASKS[::-1], seed=seed)
    torch.testing.assert_close(forwards.weights, backwards.weights.flip(0), rtol=1e-3, atol=1e-5)
    assert_same(gradients(first), gradients(second), rtol=1e-3, atol=1e-5)


@EVERY
@settings(max_examples=3, deadline=None)
@given(seed=seeds, before=st.integers(0, 4))
def test_state_round_trip_is_bit_exact_after_any_step(name, options, seed, before):
    model = Model(seed)
    balancer, _ = run(name, options, model, steps=before, seed=seed) if before else (None, None)
    balancer = balancer or excessmtl.create(name, tasks=TASKS, shared=model.trunk, **options)
    twin = copy.deepcopy(model)
    restored = excessmtl.create(name, tasks=TASKS, shared=twin.trunk, **options)
    restored.load_state_dict(copy.deepcopy(balancer.state_dict()))
    for step in range(3):
        results = []
        for net, one in ((model, balancer), (twin, restored)):
            net.zero_grad()
            results.append(one.backward(net.losses(seed + 100 + step)[1]))
        assert torch.equal(results[0].weights, results[1].weights)
        for one, other in zip(gradients(model), gradients(twin), strict=True):
            assert torch.equal(one, other)
    one, other = balancer.state_dict(), restored.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


@EVERY
@settings(max_examples=2, deadline=None)
@given(seed=seeds)
def test_same_gradients_with_and_without_at(name, options, seed):
    first, second = Model(seed), Model(seed)
    _, without = run(name, options, first, steps=2, seed=seed)
    _, given_z = run(name, options, second, steps=2, use_at=True, seed=seed)
    torch.testing.assert_close(without.weights, given_z.weights, rtol=1e-4, atol=1e-6)
    assert_same(gradients(first), gradients(second), rtol=1e-4, atol=1e-6)


@EVERY
@settings(max_examples=2, deadline=None)
@given(seed=seeds)
def test_scalar_form_gives_the_same_shared_gradient(name, options, seed):
    first, second = Model(seed), Model(seed)
    _, direct = run(name, options, first, steps=2, seed=seed)
    _, scalar = run(name, options, second, steps=2, scalar=True, seed=seed)
    torch.testing.assert_close(direct.weights, scalar.weights, rtol=1e-4, atol=1e-6)
    assert_same(gradients(first.trunk), gradients(second.trunk), rtol=1e-4, atol=1e-6)
    weighted = Model(seed)
    run(name, {**options, "heads": "weighted"}, weighted, steps=2, seed=seed)
    assert_same(gradients(second.heads), gradients(weighted.heads), rtol=1e-4, atol=1e-6)


@EVERY
def test_a_task_that_is_missing_leaves_the_others_their_weights(name, options):
    """One task out of three has no label: the step still happens and everything stays finite."""
    model = Model(3)
    balancer, before = run(name, options, model, steps=2)
    kept = before.weights[1].clone()
    model.zero_grad()
    _, losses = model.losses(50)
    result = balancer.backward({"a": losses["a"], "c": losses["c"]})
    assert result.weights[1] == kept
    assert result.losses[1].isnan()
    assert result.skipped == ()
    assert model.heads["b"].weight.grad is None
    assert all(p.grad.isfinite().all() for p in model.trunk.parameters())


@EVERY
def test_a_task_that_is_not_finite_is_left_out(name, options):
    """A loss that is not a number: its task is skipped, its state and head stay, and the others train on."""
    model = Model(3)
    balancer, _ = run(name, options, model, steps=2)
    state = {key: value.clone() for key, value in balancer.state.items()}
    model.zero_grad()
    _, losses = model.losses(50)
    result = balancer.backward({**losses, "b": losses["b"] * torch.nan})
    assert result.skipped == ("b",)
    assert result.weights[1] == 0
    assert result.weights.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.trunk.parameters())
    assert all(p.grad is None or not p.grad.any() for p in model.heads["b"].parameters())
    for key, value in state.items():
        assert balancer.state[key].isfinite().all(), key
        if value.dim() and len(value) == len(TASKS):
            assert torch.equal(balancer.state[key][1], value[1]), key


def test_uniform_keeps_its_share_when_a_task_is_missing():
    """No renormalisation: alternating between tasks gives the right expected step."""
    model = Model(0)
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
        "ldc_mtl", "autoscale", "forum",
    ]  # fmt: skip


@pytest.mark.parametrize("name", excessmtl.list_methods())
def test_the_catalogue_tells_which_methods_are_free_of_the_scale_of_a_loss(name):
    if name in RANDOM:
        assert not CATALOGUE[name].scale_free
        return
    found = []
    for scale in (1.0, 0.01, 100.0):
        model = Model(1, scale)
        run(name, {}, model, steps=3)
        found.append(torch.cat([p.grad.flatten() for p in model.trunk.parameters()]))
    cosines = torch.cosine_similarity(found[0], torch.stack(found[1:]))
    assert bool((cosines > 0.999).all()) == CATALOGUE[name].scale_free, cosines


def test_losses_after_the_step():
    model = Model(0)
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
