"""Tasks come and go: each keeps its own state, and the others go on as if nothing had happened."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from choices import EVERY_METHOD, METHODS, Method, each
from models import WIDTH, MultiTask
from steps import assert_same

NAMES = ["a", "b", "c"]


def model():
    torch.manual_seed(0)
    return MultiTask(heads={task: nn.Linear(WIDTH, 1) for task in "abcde"})


def advance(balancer, network, steps=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x, y = torch.randn(8, 6, generator=generator), torch.randn(8, 5, generator=generator)
        outputs, places = network(x), {task: "abcde".index(task) for task in balancer.tasks}
        step = balancer.backward({task: (1 + i) * mse_loss(outputs[task], y[:, [i]]) for task, i in places.items()})
    return step


def create(method, tasks, network, **options):
    return excessmtl.create(method.name, tasks=tasks, shared=network.trunk, **{**method.options, **options})


CHANGEABLE = [method for method in EVERY_METHOD if method.name != "gradvac"]
"""`gradvac` keeps a number per pair of tasks, and refuses."""


def rows(balancer):
    """Task -> what the balancer remembers of it."""
    state = {name: tensor for name, tensor in balancer.state.items() if tensor.ndim}
    state["skipped"] = balancer.skipped
    return {task: {name: tensor[i].clone() for name, tensor in state.items()} for i, task in enumerate(balancer.tasks)}


@each("method", CHANGEABLE)
def test_the_others_keep_their_state(method):
    network = model()
    balancer = create(method, NAMES, network)
    advance(balancer, network)
    before, total = rows(balancer), balancer.rule.total(3)
    balancer.remove_task("b")
    assert balancer.tasks == ("a", "c")
    assert_same(rows(balancer)["c"], before["c"])
    balancer.add_task("d")
    assert balancer.tasks == ("a", "c", "d")
    assert_same(rows(balancer)["a"], before["a"])
    assert_same(rows(balancer)["c"], before["c"])
    assert balancer.steps == 3
    if total is not None:
        assert balancer.weights.sum() == pytest.approx(total, rel=1e-5)
    step = advance(balancer, network, seed=1)
    assert step.tasks == ("a", "c", "d")
    assert step.weights.isfinite().all()
    fresh = create(method, ["a", "c", "d"], network)
    fresh.load_state_dict(balancer.state_dict())
    assert_same(fresh.state, balancer.state)


@each("method", CHANGEABLE)
def test_a_state_is_loaded_by_the_names_of_its_tasks(method):
    network = model()
    primary = {"primary": "a"} if method.name == "pcd" else {}  # by default the first task, which is another one here
    balancer = create(method, NAMES, network, **primary)
    advance(balancer, network)
    other = create(method, ["d", "c", "a"], network, **primary)
    expected = rows(balancer), rows(other)
    other.load_state_dict(balancer.state_dict(), tasks="match")
    assert other.steps == 3
    assert_same(rows(other)["a"], expected[0]["a"])
    assert_same(rows(other)["c"], expected[0]["c"])
    kept = {name: tensor for name, tensor in rows(other)["d"].items() if name not in other.rule.logits}
    assert_same(kept, {name: expected[1]["d"][name] for name in kept})
    assert advance(other, network, seed=1).weights.isfinite().all()


@each("method", [*METHODS, Method("gradvac"), Method("pcd")])
def test_by_the_names_of_the_same_tasks_is_as_strict_and_as_exact_as_without(method):
    network = model()
    balancer = create(method, NAMES, network)
    advance(balancer, network, 7)
    saved = balancer.state_dict()
    strict, matching = create(method, NAMES, network), create(method, NAMES, network)
    strict.load_state_dict(saved)
    matching.load_state_dict(saved, tasks="match")
    assert_same(matching.state_dict(), saved)
    assert torch.equal(advance(matching, network, seed=1).weights, advance(strict, network, seed=1).weights)
    assert_same(matching.state_dict(), strict.state_dict())


ONE, OTHER = {"a": 0.1, "b": 0.2, "c": 0.3}, {"a": 0.1, "b": 0.3, "c": 0.2}
KINDS = ["regression", "classification", "regression"]
PER_TASK = [
    # Method, option, its value for a, b, c, the same for c, a, b, and another.
    *((name, option, ONE, ONE, OTHER) for name, option in [("static", "weights"), ("cosmos", "preference")]),
    *((name, option, ONE, ONE, OTHER) for name, option in [("dtp", "gamma"), ("famo", "lower")]),
    ("gradnorm", "initial_losses", ONE, ONE, OTHER),
    ("pbi", "preference", [0.1, 0.2, 0.3], [0.3, 0.1, 0.2], [0.3, 0.2, 0.2]),
    ("forum", "validation", ["c"], ["c"], ["b"]),
    ("auto_lambda", "primary", ["c"], ["c"], ["b"]),
    ("pcd", "primary", "a", "a", "c"),
    ("uw", "kinds", KINDS, [KINDS[2], *KINDS[:2]], "regression"),
    ("mgda", "protect", {"a": 0.1, "b": 0.2}, {"a": 0.1, "b": 0.2}, {"a": 0.2, "b": 0.1}),
]


@pytest.mark.parametrize(("name", "option", "value", "turned", "another"), PER_TASK)
def test_options_by_task_are_compared_by_name(name, option, value, turned, another):
    network = model()
    saved = create(Method(name), NAMES, network, **{option: value})
    advance(saved, network)
    same, differs = [create(Method(name), ["c", "a", "b"], network, **{option: one}) for one in (turned, another)]
    same.load_state_dict(saved.state_dict(), tasks="match")
    assert_same(rows(same)["c"], rows(saved)["c"])
    before = {key: value.clone() for key, value in differs.state_dict().items()}
    with pytest.raises(ValueError, match=f"saved with {option}="):
        differs.load_state_dict(saved.state_dict(), tasks="match")
    assert_same(differs.state_dict(), before)


# ------------------------------------------------------------------ one task that is named


def follows(balancer):
    return balancer.tasks[balancer.rule.primary]


@pytest.mark.parametrize("primary", [None, 0, 2, "c"])
def test_the_primary_task_stays_the_same_when_others_go(primary):
    network = model()
    balancer = create(Method("pcd"), NAMES, network, primary=primary)
    before = follows(balancer)
    gone = next(task for task in NAMES if task != before)
    advance(balancer, network)
    balancer.remove_task(gone)
    balancer.add_task("d")
    assert follows(balancer) == before
    alone = create(Method("pcd"), list(balancer.tasks), network, primary=before)
    alone.load_state_dict(balancer.state_dict())
    assert torch.equal(advance(balancer, network, seed=1).weights, advance(alone, network, seed=1).weights)


def test_the_primary_task_cannot_go_unnoticed():
    network = model()
    balancer = create(Method("pcd"), NAMES, network)
    before = {key: value.clone() for key, value in balancer.state_dict().items()}
    with pytest.raises(ValueError, match=r"primary must be one of the tasks.*'b', 'c'.*found 'a'"):
        balancer.remove_task("a")
    assert_same(balancer.state_dict(), before)
    other = create(Method("pcd"), ["b", "c"], network)  # which says so by having another one
    other.load_state_dict(balancer.state_dict(), tasks="match")
    assert follows(other) == "b"


def test_scores_of_a_new_task_give_it_the_mean_weight():
    """Scores grow with every step; 0 beside them would be next to no weight."""
    network = model()
    balancer = excessmtl.create("groupdro", tasks=NAMES, shared=network.trunk, step_size=1.0)
    advance(balancer, network, 20)
    balancer.add_task("d")
    assert balancer.weights[3] == pytest.approx(0.25)
    assert balancer.state["scores"].softmax(0)[3] == pytest.approx(0.25)


def test_floors_go_with_their_task():
    network = model()
    balancer = excessmtl.create("mgda", tasks=NAMES, shared=network.trunk, protect={"a": 0.2, "b": 0.3})
    balancer.remove_task("a")
    assert balancer.protect == {"b": 0.3}
    assert advance(balancer, network, 1).weights[0] >= 0.6 - 1e-6


def refusals():
    network = model()

    def made(name="excess", **options):
        return excessmtl.create(name, tasks=NAMES, shared=network.trunk, **options)

    def between_micro_batches():
        balancer = made()
        balancer.backward({"a": network(torch.randn(4, 6))["a"].mean()}, accumulate=True)
        return balancer

    uniform = excessmtl.create("uniform", tasks=["x"], shared=network.trunk).state_dict()
    elsewhere = excessmtl.create("excess", tasks=["x"], shared=network.trunk).state_dict()
    trusting = made(trust=1.0).state_dict()
    narrow = excessmtl.create("excess", tasks=["a"], shared=network.trunk, estimator="paper")
    wide = excessmtl.create("excess", tasks=["a"], shared=nn.Linear(6, 9), estimator="paper")
    return {
        "more than once": (made(), lambda balancer: balancer.add_task("a")),
        "unknown task 'x'": (made(), lambda balancer: balancer.remove_task("x")),
        "is empty": (narrow, lambda balancer: balancer.remove_task("a")),
        "given per task": (made("static", weights={"a": 1, "b": 2, "c": 3}), lambda balancer: balancer.add_task("d")),
        "has no row per task": (made("gradvac"), lambda balancer: balancer.add_task("d")),
        "between two micro-batches": (between_micro_batches(), lambda balancer: balancer.add_task("d")),
        "state is for method 'uniform'": (made(), lambda balancer: balancer.load_state_dict(uniform, tasks="match")),
        "none matches": (made(), lambda balancer: balancer.load_state_dict(elsewhere, tasks="match")),
        "saved with trust=1.0": (made(), lambda balancer: balancer.load_state_dict(trusting, tasks="match")),
        "of shape": (narrow, lambda balancer: balancer.load_state_dict(wide.state_dict(), tasks="match")),
        "'same' or 'match'": (made(), lambda balancer: balancer.load_state_dict(elsewhere, tasks="all")),
    }


REFUSED = refusals()


@each("reason", list(REFUSED))
def test_refusals_change_nothing(reason):
    balancer, change = REFUSED[reason]
    tasks, before = balancer.tasks, {name: tensor.clone() for name, tensor in balancer.named_buffers()}
    with pytest.raises(ValueError, match=reason):
        change(balancer)
    assert balancer.tasks == tasks
    assert_same(dict(balancer.named_buffers()), before)
