"""Heads that look at one position of a sequence: all engines give the same, and the gradients at z are small."""

import copy

import pytest
import torch
from torch import nn

import excessmtl
from cases import each, finds_selections
from engines import ENGINES
from excessmtl.gradients.selection import Selected
from excessmtl.gradients.ways import Fastest
from models import DEVICE, PAPER, ROBUST, UNIFORM, Method, assert_same

TASKS = list("abc")
SIZE, LENGTH, WIDTH = 6, 5, 40


class Model(nn.Module):
    """A trunk that mixes the tokens, and heads on some of them."""

    def __init__(self, deep=False):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Conv1d(LENGTH, LENGTH, 3, padding=1), nn.Tanh())
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 2)) if deep else nn.Linear(WIDTH, 2)
            for _ in TASKS
        )

    def losses(self, x, select):
        taken = select(self.trunk(x))
        return {task: head(one).square().mean() for task, head, one in zip(TASKS, self.heads, taken, strict=True)}


def once(z):
    first = z[:, 0]
    return [first] * 3


SELECTIONS = {
    "once": once,
    "in every head": lambda z: [z[:, 0], z[:, 0, :], z.select(1, 0)],
    "the last": lambda z: [z[:, -1]] * 3,
    "different ones": lambda z: [z[:, 0], z[:, 1], z[:, 0]],
    "some take all": lambda z: [z[:, 0], z, z[:, 0]],
    "a sample": lambda z: [z[0]] * 3,
    "a feature": lambda z: [z[..., 0].unsqueeze(-1).expand(-1, -1, WIDTH)] * 3,
}
FAST = {"once", "in every head", "the last"}


def batches(count=3):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(SIZE, LENGTH, 4, generator=generator).to(DEVICE) for _ in range(count)]


def run(method, engine, select, *, deep=False, form="backward", prepare=None, **arguments):
    """Gradients and steps of a few batches."""
    torch.manual_seed(1)
    model = Model(deep).to(DEVICE)
    balancer = method.create(model.trunk, tasks=TASKS, engine=engine())
    found = []
    for x in batches():
        model.zero_grad()
        losses = model.losses(x, select if prepare is None else lambda z: select(prepare(z)))
        if form == "backward":
            step = balancer.backward(losses, **arguments)
        else:
            balancer(losses).backward()
            step = balancer.last_step
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        found.append([step.weights, step.losses, step.excess_risks.nan_to_num(-1), *gradients])
    return found, balancer.state


@pytest.mark.parametrize("form", ["backward", "scalar"])
@pytest.mark.parametrize("deep", [False, True], ids=["linear", "deep"])
@pytest.mark.parametrize("name", SELECTIONS)
@each("method", [ROBUST, UNIFORM, PAPER, Method("mgda", {"probe": "representation"}), Method("gradnorm")])
def test_every_engine_gives_the_same(method, name, deep, form):
    found = {way: run(method, engine, SELECTIONS[name], deep=deep, form=form) for way, engine in ENGINES.items()}
    wanted = found.pop("reference")
    for way in found.values():
        torch.testing.assert_close(way, wanted, rtol=2e-3, atol=2e-5)


class Looking(Fastest):
    """Remembers where the tasks met."""

    def plan(self, inputs):
        plan = super().plan(inputs)
        self.met = plan.heads.representation if plan.separate_heads else None
        return plan


@finds_selections
@pytest.mark.parametrize("name", SELECTIONS)
@each("method", [ROBUST, PAPER, UNIFORM])
def test_a_position_stands_for_z_where_all_heads_take_it(method, name):
    engine = Looking()
    run(method, lambda: engine, SELECTIONS[name])
    # A trunk that is passed for every task is entered at one place.
    assert isinstance(engine.met, Selected) == (name in FAST and not (method is PAPER and name == "in every head"))


@each("method", [Method("excess", {"batch_dim": 1}), Method("excess", {"feature_dim": 1}), Method("graddrop")])
def test_not_where_the_rule_reads_other_dimensions(method):
    engine = Looking()
    run(method, lambda: engine, once)
    assert not isinstance(engine.met, Selected)


@each("method", [ROBUST, UNIFORM])
def test_masks_and_micro_batches(method):
    mask = {"b": torch.arange(SIZE, device=DEVICE) % 2 == 0}
    for arguments in ({"mask": mask}, {"accumulate": True}):
        found = [run(method, engine, once, **arguments) for engine in ENGINES.values()]
        for one in found[:-1]:
            torch.testing.assert_close(one, found[-1], rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("place", ["z", "position"])
@each("method", [ROBUST, UNIFORM])
def test_hooks_act_once(method, place):
    """On z, or on the position that all heads take: a hook that doubles makes gradients below twice as large."""

    def doubled(tensor):
        tensor.register_hook(lambda gradient: 2 * gradient)
        return tensor

    def select(z):
        return [doubled(z[:, 0]) if place == "position" else z[:, 0]] * 3

    (plain, *_), _ = run(method, Fastest, once)
    (hooked, *_), _ = run(method, Fastest, select, prepare=doubled if place == "z" else None)
    trunk = slice(3, 3 + 4)
    torch.testing.assert_close(hooked[trunk], [2 * gradient for gradient in plain[trunk]], rtol=1e-4, atol=1e-6)


def test_a_representation_that_was_changed_in_place_is_refused():
    torch.manual_seed(1)
    model = Model().to(DEVICE)
    balancer = excessmtl.create("excess", tasks=TASKS, shared=model.trunk)
    (x,) = batches(1)
    z = model.trunk(x)
    losses = {task: head(z[:, 0]).square().mean() for task, head in zip(TASKS, model.heads, strict=True)}
    with torch.no_grad():
        z += 1
    with pytest.raises((ValueError, RuntimeError), match=r"in place|inplace"):
        balancer.backward(losses)


def test_a_balancer_in_use_can_be_copied():
    torch.manual_seed(1)
    model = Model().to(DEVICE)
    balancer = excessmtl.create("excess", tasks=TASKS, shared=model.trunk)
    for x in batches(2):
        balancer.backward(model.losses(x, once), accumulate=True)
    copied_model, copied = copy.deepcopy((model, balancer))
    (x,) = batches(1)
    steps = [one.backward(network.losses(x, once)) for one, network in ((balancer, model), (copied, copied_model))]
    assert_same(steps[0].weights, steps[1].weights)


def doubled(gradient):
    return 2 * gradient


@pytest.mark.parametrize("kept", ["hook", "retain_grad"])
@pytest.mark.parametrize("deep", [False, True], ids=["linear", "deep"])
@pytest.mark.parametrize("head", [0, 1, 2])
@each("method", [ROBUST, UNIFORM, Method("mgda", {"probe": "representation"})])
def test_what_waits_at_the_selection_of_one_head_concerns_its_task_alone(method, head, deep, kept):
    def select(z):
        taken = [z[:, 0] for _ in TASKS]
        if kept == "hook":
            taken[head].register_hook(doubled)
        else:
            taken[head].retain_grad()
            waiting.append(taken[head])
        return taken

    found = []
    for engine in ENGINES.values():
        waiting = []
        found.append([run(method, engine, select, deep=deep), [one.grad for one in waiting]])
    for one in found[:-1]:
        torch.testing.assert_close(one[0], found[-1][0], rtol=2e-3, atol=2e-5)
        assert all(gradient is not None for gradient in one[1])


@finds_selections
def test_a_micro_batch_that_waits_does_not_keep_the_other_positions():
    torch.manual_seed(1)
    model = Model().to(DEVICE)
    balancer = excessmtl.create("excess", tasks=TASKS, shared=model.trunk)
    (x,) = batches(1)
    balancer.backward(model.losses(x, once), accumulate=True)
    (waiting,) = balancer._pending
    kept = waiting.at_z[0].representation.stored
    assert kept.untyped_storage().nbytes() == kept.numel() * kept.element_size()
