"""What a saved state may be loaded into, and what a saved state must say."""

import copy
import warnings

import pytest
import torch
from torch import nn

import excessmtl
from cases import each
from models import (
    METHODS,
    PAPER,
    ROBUST,
    TASKS,
    UNIFORM,
    Method,
    assert_same,
    batch,
    host_state,
    losses_of,
    mlp,
    trained,
    with_host_state,
)

EXTRA = "memory._extra_state"

PAPER_EXCESS = {"estimator": "paper"}
AT_REPRESENTATION = {**PAPER_EXCESS, "probe": "representation"}
INITIAL = {**PAPER_EXCESS, "normalize": "initial"}
MEANING = [
    # Method, options of both, the option that differs, its value on saving (None: left out) and on loading.
    ("excess", {}, "first_steps", 20, 5),
    ("excess", {}, "decay", 0.99, 0.9),
    ("excess", {}, "need", 0.2, 0.5),
    ("excess", {}, "width", 32, 8),
    ("excess", {}, "seed", 0, 1),
    ("excess", {}, "batch_dim", 0, 1),
    ("excess", {}, "feature_dim", None, 1),
    ("excess", {}, "estimator", "robust", "paper"),
    ("excess", PAPER_EXCESS, "normalize", "none", "initial"),
    ("excess", INITIAL, "warmup_steps", 0, 4),
    ("excess", PAPER_EXCESS, "accumulators", "fp32", "bf16"),
    ("excess", PAPER_EXCESS, "probe", "all", "representation"),
    ("excess", AT_REPRESENTATION, "width", 32, 8),
    ("excess", AT_REPRESENTATION, "seed", 0, 1),
    ("excess", AT_REPRESENTATION, "batch_dim", 0, 1),
    ("excess", AT_REPRESENTATION, "feature_dim", None, 1),
    ("gradnorm", {}, "initial_losses", None, [1.0, 2.0, 3.0]),
    ("moml", {}, "inner_step", 0.1, 1.0),
    ("uw", {}, "kinds", "regression", "classification"),
    ("dwa", {}, "window", 100, 5),
    ("static", {}, "weights", None, [0.2, 0.3, 0.5]),
    ("rlw", {}, "seed", 0, 1),
    ("pcgrad", {}, "seed", 0, 1),
    ("graddrop", {}, "seed", 0, 1),
    ("mgda", {}, "probe", "all", "representation"),
    ("imtl_hybrid", {}, "probe", "all", "representation"),
    ("excess", {}, "every", 1, 2),
    ("uniform", {}, "every", 1, 2),
    ("excess", {}, "heads", "unweighted", "weighted"),
    ("excess", {}, "scale", "sum", "mean"),
    ("uniform", {}, "scale", "sum", 3.0),
    ("excess", {}, "protect", {"a": 0.5}, {"a": 0.4}),
    ("uniform", {}, "protect", None, {"b": 0.5}),
]
"""Options by which the numbers in a state were made, so that with others they mean something else."""
WEIGHING = [
    ("excess", {}, "trust", 2.0, 1.0),
    ("excess", {}, "cap", 100.0, 10.0),
    ("excess", {}, "damping", 1e-3, 1e-2),
    ("excess", PAPER_EXCESS, "step_size", 0.01, 0.1),
    ("gradnorm", {}, "alpha", 1.5, 0.5),
    ("gradnorm", {}, "step_size", 0.025, 0.1),
    ("groupdro", {}, "step_size", 0.01, 0.1),
    ("moml", {}, "step_size", 1e-3, 1e-2),
    ("uw", {}, "step_size", 0.025, 0.1),
    ("imtl_l", {}, "step_size", 0.025, 0.1),
    ("dwa", {}, "temperature", 2.0, 1.0),
    ("dtp", {}, "rate", 0.1, 0.5),
    ("dtp", {}, "gamma", 1.0, 2.0),
    ("mgda", {}, "normalize", "none", "l2"),
    ("mgda", {}, "solver", "exact", "frank-wolfe"),
    ("cagrad", {}, "c", 0.4, 0.2),
    ("nash", {}, "max_norm", 1.0, None),
    ("graddrop", {}, "leak", 0.0, 0.5),
]
"""Options that say what is made of the state. The guide says that a state with other options is refused."""


def named(cases):
    ids = [f"{name}-{'-'.join([*map(str, both.values()), option])}-{new}" for name, both, option, _, new in cases]
    return pytest.mark.parametrize(("name", "both", "option", "old", "new"), cases, ids=ids)


def refuses_to_load(name, both, option, old, new):
    model = mlp()
    given = {} if old is None and option != "max_norm" else {option: old}
    saving = Method(name, {**both, **given}).create(model.trunk)
    trained(saving, model, 2)
    loading = Method(name, {**both, option: new}).create(model.trunk)
    before = copy.deepcopy(loading.state_dict())
    with pytest.raises(ValueError, match=rf"\b{option}\b"):
        loading.load_state_dict(saving.state_dict())
    assert_same(before, loading.state_dict())


@named(MEANING)
def test_an_option_that_changes_the_meaning_of_the_state_is_refused_by_name(name, both, option, old, new):
    refuses_to_load(name, both, option, old, new)


@named(WEIGHING)
def test_an_option_that_changes_what_is_made_of_the_state_is_refused_by_name(name, both, option, old, new):
    refuses_to_load(name, both, option, old, new)


def test_another_layer_is_refused_by_name():
    """GradNorm's weights belong to the norms of one layer."""
    model = mlp()
    saved = Method("gradnorm").create(model.trunk).state_dict()
    other = Method("gradnorm").create(model.trunk, layer=model.trunk[0].bias)
    with pytest.raises(ValueError, match=r"\blayer\b"):
        other.load_state_dict(saved)


@pytest.mark.parametrize("option", [{"tasks_at_once": 2}, {"record": False}, {"pool": False}], ids=str)
def test_options_that_change_nothing_but_the_way_may_differ(option):
    model = mlp()
    saving = PAPER.create(model.trunk)
    trained(saving, model, 2)
    loading = PAPER.create(model.trunk, **option)
    loading.load_state_dict(saving.state_dict())
    assert_same(saving.state_dict(), loading.state_dict())


# ------------------------------------------------------------------ damaged states


def with_random_stream(change):
    def damaged(state):
        told = host_state(state)
        return with_host_state(state, {**told, "random": change(told["random"])})

    return damaged


DAMAGED = {
    "a random stream of zeros": with_random_stream(lambda stream: "A" * len(stream)),
    "half a random stream": with_random_stream(lambda stream: stream[: len(stream) // 8 * 4]),
    "no random stream": with_random_stream(lambda stream: None),
    "extra state without values": lambda state: {**state, EXTRA: state[EXTRA].to("meta")},
    "sparse extra state": lambda state: {**state, EXTRA: state[EXTRA].to_sparse()},
    "weights without values": lambda state: {**state, "memory.weights": state["memory.weights"].to("meta")},
    "sparse weights": lambda state: {**state, "memory.weights": state["memory.weights"].to_sparse()},
    "counts without values": lambda state: {**state, "memory.skipped": state["memory.skipped"].to("meta")},
    "True for a number of steps": lambda state: with_host_state(state, {**host_state(state), "steps": True}),
    "a key too many": lambda state: {**state, "more": torch.zeros(3)},
    "a key of somebody else": lambda state: {**state, "memory": torch.zeros(3)},
    "a key is missing": lambda state: {key: value for key, value in state.items() if key != "memory.weights"},
    "another shape": lambda state: {**state, "memory.weights": torch.zeros(4)},
    "another type": lambda state: {**state, "memory.weights": state["memory.weights"].double()},
    "another version": lambda state: with_host_state(state, {**host_state(state), "version": 2}),
    "other tasks": lambda state: with_host_state(state, {**host_state(state), "tasks": ["a", "b", "x"]}),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_a_damaged_state_changes_nothing(method, damage):
    model = mlp()
    balancer = method.create(model.trunk)
    trained(balancer, model, 2)
    before = copy.deepcopy(balancer.state_dict())
    with pytest.raises((ValueError, RuntimeError, TypeError)):
        balancer.load_state_dict(DAMAGED[damage](method.create(model.trunk).state_dict()))
    assert_same(before, balancer.state_dict())


@each("method", [Method(name) for name in excessmtl.list_methods()])
def test_a_key_too_many_changes_nothing(method):
    """In the state of the balancer, and in that of a model that owns it."""
    model = mlp()
    saved = method.create(model.trunk).state_dict()
    balancer = method.create(model.trunk)
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
    found = balancer.load_state_dict({**saved, "more": torch.zeros(3)}, strict=False)
    assert found.unexpected_keys == ["more"]
    assert_same(saved, balancer.state_dict())


@pytest.mark.parametrize("tasks", ["same", "match"])
@each("method", [Method(name) for name in excessmtl.list_methods()])
def test_nan_is_refused_by_the_name_of_its_buffer(method, tasks):
    model = mlp()
    balancer = method.create(model.trunk)
    trained(balancer, model, 2)
    saved = copy.deepcopy(balancer.state_dict())
    for key in [key for key, value in saved.items() if value.is_floating_point() and value.numel()]:
        damaged = saved[key].clone()
        damaged.view(-1)[-1] = torch.nan
        with pytest.raises(ValueError, match=f"NaN in {key.removeprefix('memory.')}"):
            balancer.load_state_dict({**saved, key: damaged}, tasks=tasks)
        assert_same(saved, balancer.state_dict())


@pytest.mark.filterwarnings("ignore:.* left out")
@pytest.mark.parametrize("loss", ["missing", "nan", "inf", "huge", "zero"])
@each("method", [Method(name) for name in excessmtl.list_methods()])
def test_training_leaves_no_nan_in_a_state(method, loss):
    """So that a state of any training can be loaded."""
    model = mlp()
    balancer = method.create(model.trunk)
    bad = {"nan": torch.nan, "inf": torch.inf, "huge": 1e17, "zero": 0.0}
    for _ in range(3):
        x, targets = batch()
        losses = losses_of(model(x), targets)
        losses["b"] = None if loss == "missing" else losses["b"] * bad[loss]
        balancer.backward(losses)
        balancer.end_epoch()
    restored = method.create(model.trunk)
    restored.load_state_dict(balancer.state_dict())
    assert_same(balancer.state_dict(), restored.state_dict())


# ------------------------------------------------------------------ between two micro-batches


@each("method", METHODS)
def test_a_state_saved_between_micro_batches_says_what_is_not_in_it(method):
    """A resumed run would take the last micro-batch for the whole step. GradDrop holds nothing back."""
    model = mlp()
    balancer = method.create(model.trunk)
    x, targets = batch()
    balancer.backward(losses_of(model(x), targets), accumulate=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        balancer.state_dict()
        assert any("micro-batch" in str(warning.message) for warning in caught) == balancer.accumulating
    balancer.discard()
    balancer.state_dict()  # and now there is nothing to say: warnings are errors here


def test_a_state_saved_between_steps_says_nothing():
    model = mlp()
    balancer = PAPER.create(model.trunk)
    x, targets = batch()
    balancer.backward(losses_of(model(x), targets), accumulate=True)
    balancer.backward(losses_of(model(x), targets))
    assert host_state(balancer.state_dict())["tasks"] == TASKS


@each("method", [ROBUST, PAPER, UNIFORM])
def test_loading_by_assignment_does_not_share_memory_with_the_saved_state(method):
    model = mlp()
    balancer = method.create(model.trunk)
    trained(balancer, model, 2)
    saved = balancer.state_dict()
    before = copy.deepcopy(saved)
    balancer.load_state_dict(saved, assign=True)
    trained(balancer, model, 2)
    assert_same(saved, before)
