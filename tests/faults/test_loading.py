"""What a saved state may be loaded into, and what a saved state must say."""

import copy
import warnings
from dataclasses import fields

import pytest
import torch
from torch import nn

from choices import EVERY_METHOD, PAPER, ROBUST, UNIFORM, Method, each
from models import mlp
from steps import assert_same, host_state, started, trained

OTHERS = [
    # Method, what it was saved with, and what the balancer has that is to load it.
    (Method("excess"), {}, {"first_steps": 5}),
    (Method("excess"), {}, {"estimator": "paper"}),
    (Method("excess"), {}, {"heads": "weighted"}),
    (Method("uniform"), {}, {"scale": 3.0}),
    (Method("uniform"), {"protect": {"a": 0.5}}, {"protect": {"a": 0.4}}),
    (Method("uniform"), {}, {"protect": {"b": 0.5}}),
    (PAPER, {}, {"accumulators": "bf16"}),
    (PAPER, {}, {"probe": "representation"}),
    (Method("static"), {}, {"weights": [0.2, 0.3, 0.5]}),
]


@pytest.mark.parametrize(("method", "saved_with", "loads_with"), OTHERS, ids=str)
def test_another_option_is_refused_by_name(method, saved_with, loads_with):
    model, saving = started(method, **saved_with)
    trained(saving, model, 2)
    loading = Method(method.name, {**method.options, **loads_with}).create(model.trunk)
    before = copy.deepcopy(loading.state_dict())
    with pytest.raises(ValueError, match=rf"\b{next(iter(loads_with))}\b"):
        loading.load_state_dict(saving.state_dict())
    assert_same(before, loading.state_dict())


def test_every_option_is_saved():
    """So that each is compared as those above are."""
    trunk = mlp().trunk
    for method in EVERY_METHOD:
        balancer = method.create(trunk)
        saved = host_state(balancer.state_dict())["options"]
        own = {field.name for field in fields(balancer.rule) if field.init}
        assert own | {"every", "heads", "scale"} <= set(saved), method


def test_another_layer_is_refused_by_name():
    """GradNorm's weights belong to the norms of one layer."""
    model = mlp()
    saved = Method("gradnorm").create(model.trunk).state_dict()
    other = Method("gradnorm").create(model.trunk, layer=model.trunk[0].bias)
    with pytest.raises(ValueError, match=r"\blayer\b"):
        other.load_state_dict(saved)


@pytest.mark.parametrize("option", [{"tasks_at_once": 2}, {"record": False}, {"pool": False}], ids=str)
def test_options_that_change_nothing_but_the_way_may_differ(option):
    model, saving = started(PAPER)
    trained(saving, model, 2)
    loading = PAPER.create(model.trunk, **option)
    loading.load_state_dict(saving.state_dict())
    assert_same(saving.state_dict(), loading.state_dict())


def test_a_key_too_many_changes_nothing():
    """In the state of the balancer, and in that of a model that owns it."""
    model, balancer = started(ROBUST)
    saved = copy.deepcopy(balancer.state_dict())
    trained(balancer, model, 2)
    before = copy.deepcopy(balancer.state_dict())
    owner = nn.ModuleDict({"balancer": balancer})
    with pytest.raises(ValueError, match=r"unexpected keys \['more'\]"):
        balancer.load_state_dict({**saved, "more": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"unexpected keys \['more'\]"):
        balancer.load_state_dict({**saved, "more": torch.zeros(3)}, tasks="match")
    with pytest.raises(ValueError, match=r"unexpected keys \['balancer.more'\]"):
        owner.load_state_dict({f"balancer.{key}": value for key, value in {**saved, "more": torch.zeros(3)}.items()})
    assert_same(before, balancer.state_dict())
    assert balancer.load_state_dict({**saved, "more": torch.zeros(3)}, strict=False).unexpected_keys == ["more"]
    assert_same(saved, balancer.state_dict())


@pytest.mark.parametrize("tasks", ["same", "match"])
@each("method", [ROBUST, PAPER])
def test_nan_is_refused_by_the_name_of_its_buffer(method, tasks):
    model, balancer = started(method)
    trained(balancer, model, 2)
    saved = copy.deepcopy(balancer.state_dict())
    for key in [key for key, value in saved.items() if value.is_floating_point() and value.numel()]:
        damaged = saved[key].clone()
        damaged.view(-1)[-1] = torch.nan
        with pytest.raises(ValueError, match=f"NaN in {key.removeprefix('memory.')}"):
            balancer.load_state_dict({**saved, key: damaged}, tasks=tasks)
        assert_same(saved, balancer.state_dict())


# ------------------------------------------------------------------ between two micro-batches


@each("method", [ROBUST, UNIFORM, Method("graddrop")])
def test_a_state_saved_between_micro_batches_says_what_is_not_in_it(method):
    """A resumed run would take the last micro-batch for the whole step. GradDrop holds nothing back."""
    model, balancer = started(method)
    balancer.backward(model.losses(), accumulate=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        balancer.state_dict()
        assert any("micro-batch" in str(warning.message) for warning in caught) == balancer.accumulating
    balancer.discard()
    balancer.state_dict()  # and now there is nothing to say: warnings are errors here
