"""Steps whose arithmetic comes from a recording are the steps themselves, bit for bit, whatever happens in between.

Without a CUDA device a stand-in does the work again (`recorded_world.py`); EXCESSMTL_TEST_DEVICE=cuda records it.
"""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import nn

import excessmtl
from choices import METHODS, PAPER, ROBUST, UNIFORM, Method, rule_of
from excessmtl.methods.base import Decision, Rule
from excessmtl.recording import recorded as engine
from excessmtl.recording.recording import MOST, WARM_UP
from models import DEVICE, FEATURES, OUTPUTS, TASKS, WIDTH
from recorded_world import HEADS, STEPS, World, assert_same, recorded

pytestmark = pytest.mark.usefixtures("recording")
on_cuda = pytest.mark.skipif(DEVICE.type != "cuda", reason="the stand-in does what a recording cannot")


def world(method=ROBUST, **options):
    return World(method, DEVICE, **options)


def both(method=ROBUST, **options):
    return world(method, record=False, **options), world(method, **options)


def one_batch(seed, size=8, missing=(), bad=()):
    generator = torch.Generator().manual_seed(seed)
    x, *drawn = (torch.randn(size, width, generator=generator).to(DEVICE) for width in (FEATURES, *OUTPUTS.values()))
    targets = {task: target * (torch.nan if task in bad else 1) for task, target in zip(TASKS, drawn, strict=True)}
    return x, {task: None if task in missing else target for task, target in targets.items()}


def take(seeds, *worlds, arguments=None, **batch):
    """The same steps in all of them."""
    for seed in seeds:
        for one in worlds:
            one.step(*one_batch(seed, **batch), **(arguments or {}))


@pytest.mark.parametrize(
    ("method", "heads"),
    [*((method, "linear") for method in METHODS), *((m, heads) for m in (ROBUST, PAPER, UNIFORM) for heads in HEADS)],
    ids=str,
)
def test_every_method_takes_the_same_steps(method, heads):
    plain, ours = both(method, head=heads)
    take(range(STEPS), plain, ours)
    assert_same(plain, ours)
    assert recorded(plain.balancer) == 0
    assert recorded(ours.balancer) == int(not rule_of(method).uses_host)


# ------------------------------------------------------------------ rules


class HandedOn(Rule):
    """Remembers the losses of the step before under another name, in the very tensor that held them."""

    name = "handed on"

    def init(self, tasks, shared):
        return {"now": torch.zeros(tasks), "before": torch.zeros(tasks)}

    def update(self, state, seen):
        return Decision(state["before"].softmax(0), {"now": seen.losses, "before": state["now"]})


class OnHost(Rule):
    """Says that it uses the host."""

    name, uses_host = "on host", True

    def update(self, state, seen):
        return Decision(torch.full_like(seen.losses, 0.5), state)


class Drawing(Rule):
    """Draws from the balancer's random stream, and does not say so."""

    name = "drawing"

    def update(self, state, seen):
        return Decision(torch.full_like(seen.losses, float(torch.rand((), generator=seen.generator))), state)


class Reading(Rule):
    """Reads from the device, and does not say so."""

    name = "reading"

    def update(self, state, seen):
        return Decision(torch.full_like(seen.losses, seen.losses.sum().item()), state)


def with_rule(rule):
    """Two worlds with this rule, without recordings and with them."""
    worlds = world(), world()
    for one, record in zip(worlds, (False, True), strict=True):
        one.balancer = excessmtl.Balancer(rule(), TASKS, one.model.trunk, record=record)
    return worlds


@pytest.mark.parametrize(("rule", "kinds"), [(HandedOn, 1), (OnHost, 0)])
def test_rules_that_hand_tensors_on_or_use_the_host(rule, kinds):
    plain, ours = with_rule(rule)
    for seed in range(2 * STEPS):
        take([seed], plain, ours)
        if seed in (WARM_UP - 1, STEPS):
            plain.balancer.end_epoch()
            ours.balancer.end_epoch()
    assert recorded(ours.balancer) == kinds
    assert_same(plain, ours)
    if rule is HandedOn:
        assert torch.equal(plain.balancer.state["before"], plain.steps[-2][0][1])  # the losses of that step
    saved = ours.balancer.state_dict()
    ours.balancer.end_epoch()
    ours.balancer.load_state_dict(saved)
    assert_same(plain, ours)


@on_cuda
@pytest.mark.parametrize(("rule", "complaint"), [(Drawing, "random numbers"), (Reading, "captur")])
def test_rules_that_cannot_be_recorded_and_do_not_say_so(rule, complaint):
    worlds = with_rule(rule)
    for one, record in zip(worlds, (False, True), strict=True):
        take(range(WARM_UP), one)
        with pytest.warns(UserWarning, match=complaint) if record else nullcontext():
            take([WARM_UP], one)
        stream = torch.cuda.current_stream()
        take(range(STEPS), one)
        assert torch.cuda.current_stream() == stream == torch.cuda.default_stream()
    assert_same(*worlds)
    # Nothing is left of the attempt: random numbers, memory and other recordings are as ever.
    assert torch.randn(8, device=DEVICE).isfinite().all()
    torch.cuda.empty_cache()
    plain, ours = both()
    take(range(STEPS), plain, ours)
    assert recorded(ours.balancer) == 1
    assert_same(plain, ours)


# ------------------------------------------------------------------ what happens between steps


@dataclass(frozen=True)
class Scenario:
    """Steps, and what happens before (`change`) and after them."""

    kinds: int
    """Recordings there are at the end."""
    method: Method = ROBUST
    options: dict = field(default_factory=dict)
    steps: int = 2 * STEPS
    batch: Callable[[int], dict[str, Any]] = lambda seed: {}
    change: Callable[[World, int], None] = lambda world, seed: None
    after: Callable[[World, int], None] = lambda world, seed: None


class LaidOut(nn.Module):
    """The same values, in one order in memory or the other."""

    turned = False

    def forward(self, z):
        return z.t().contiguous().t() if self.turned else z


MASK = {"a": torch.tensor([True] * 5 + [False] * 3, device=DEVICE)}
BATCHES = [{}, {}, {}, {}, {"bad": ["b"]}, {}, {"missing": ["c"]}, {"size": 5}, {"arguments": {"mask": MASK}}, {}]


def replace_a_head_then_freeze_another(world, seed):
    if seed == STEPS:
        torch.manual_seed(5)
        world.model.heads["a"] = nn.Linear(WIDTH, OUTPUTS["a"]).to(DEVICE)
    if seed == 2 * STEPS:
        world.model.heads["b"].bias.requires_grad_(False)
        world.model.heads["b"].bias.grad = None


def exchange_the_rule(world, seed):
    if seed == STEPS:
        world.balancer.rule = replace(world.balancer.rule, trust=0.1)


def turn_the_layout(world, seed):
    if seed == 0:
        world.model.trunk.append(LaidOut())
    world.model.trunk[-1].turned = seed % 3 == 0


def load_an_earlier_state(world, seed):
    if seed == STEPS:
        world.kept = world.balancer.state_dict()
    if seed == 2 * STEPS:
        world.balancer.load_state_dict(world.kept)


def other_kinds_of_steps(world, seed):
    world.optimizer.zero_grad()
    world.balancer.backward(world.compute(*one_batch(seed + 100)), accumulate=True)
    world.balancer.backward(world.compute(*one_batch(seed + 200)))
    world.balancer(world.compute(*one_batch(seed + 300))).backward()


def a_batch_that_is_refused(world, seed):
    with pytest.raises(ValueError, match="mask has 5 entries for a batch of 8"):
        world.balancer.backward(world.compute(*one_batch(seed)), mask={"a": MASK["a"][:5]})


def a_step_that_fails_in_the_trunk(world, seed):
    def refuse(gradient):
        raise RuntimeError("no further")

    world.optimizer.zero_grad()
    hook = world.model.trunk[0].weight.register_hook(refuse)
    with pytest.raises(RuntimeError, match="no further"):
        world.balancer.backward(world.compute(*one_batch(seed)))
    hook.remove()
    assert all(parameter.grad is None for parameter in world.model.parameters())


SCENARIOS = {
    "weighted heads": Scenario(1, options={"heads": "weighted"}),
    "every third step": Scenario(2, options={"every": 3, "scale": 3.0}, steps=3 * STEPS),
    "state in bf16": Scenario(1, PAPER, {"accumulators": "bf16"}),
    # The other kinds of batches are seen too seldom.
    "all kinds of batches": Scenario(1, steps=30, batch=lambda seed: BATCHES[seed % 10]),
    "a task is missing often": Scenario(2, batch=lambda seed: {"missing": ["c"] * (seed % 2)}),
    "many sizes": Scenario(MOST, steps=30, batch=lambda seed: {"size": 4 + seed // (WARM_UP + 2)}),
    "heads": Scenario(3, UNIFORM, steps=3 * STEPS, change=replace_a_head_then_freeze_another),
    "another rule": Scenario(2, change=exchange_the_rule),
    "another layout": Scenario(2, steps=3 * STEPS, change=turn_the_layout),
    "an earlier state": Scenario(1, steps=3 * STEPS, change=load_an_earlier_state),
    "other kinds of steps": Scenario(1, after=other_kinds_of_steps),
    "batches that are refused": Scenario(1, change=a_batch_that_is_refused),
    "steps that fail, paper": Scenario(1, PAPER, after=a_step_that_fails_in_the_trunk),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_between_steps_makes_a_difference(name):
    scenario = SCENARIOS[name]
    worlds = plain, ours = both(scenario.method, **scenario.options)
    for seed in range(scenario.steps):
        for world in worlds:
            scenario.change(world, seed)
            take([seed], world, **scenario.batch(seed))
            scenario.after(world, seed)
    assert_same(plain, ours)
    assert recorded(ours.balancer) == scenario.kinds
    assert ours.balancer.engine.failed is None


def test_what_a_step_leaves_is_not_overwritten_by_the_next_and_keeps_nothing_else():
    ours = world()
    kept = []
    for seed in range(STEPS):
        z = []
        handle = ours.model.trunk.register_forward_hook(lambda module, inputs, output, z=z: z.append(output))
        losses = ours.compute(*one_batch(seed))
        z[0].retain_grad()
        handle.remove()
        ours.optimizer.zero_grad()
        step = ours.balancer.backward(losses)
        assert step.numbers.untyped_storage().nbytes() == step.numbers.nbytes
        left = [step.numbers, z[0].grad, *(parameter.grad for parameter in ours.model.parameters())]
        kept.append((left, [tensor.clone() for tensor in left]))
    assert recorded(ours.balancer) == 1
    for left, copies in kept:
        torch.testing.assert_close(left, copies, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "state_dict"])
def test_a_copy_goes_on_by_itself(way):
    plain, ours = both()
    take(range(STEPS), plain, ours)
    copied = world()
    if way == "state_dict":
        for part in ("model", "balancer", "optimizer"):
            getattr(copied, part).load_state_dict(copy.deepcopy(getattr(ours, part).state_dict()))
        copied.steps = list(ours.steps)
    else:
        copied = copy.deepcopy(ours) if way == "deepcopy" else pickle.loads(pickle.dumps(ours))
    assert recorded(copied.balancer) == 0
    take(range(STEPS, 2 * STEPS), plain, copied, ours)
    assert_same(plain, copied)
    assert recorded(copied.balancer) == 1
    assert_same(plain, ours)


@pytest.mark.parametrize(("largest", "kinds"), [(1000, 0), (1500, 1)])
def test_large_tensors_are_not_copied_into_a_recording(monkeypatch, largest, kinds):
    """Of linear heads: z [8, 16] and their weights [6, 16], not a gradient at z for each of them; 4 bytes a number."""
    monkeypatch.setattr(engine, "_LARGEST", largest)
    one = world()
    take(range(STEPS), one)
    assert recorded(one.balancer) == kinds


def test_another_setting_of_torch_is_another_kind(monkeypatch):
    one = world()
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for precision in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = precision
            take(range(STEPS), one)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert recorded(one.balancer) == 2
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)  # cuBLAS would ask for more
    take(range(STEPS), one)
    assert recorded(one.balancer) == 3


@pytest.mark.parametrize("part", ["Recording", "fill"])
def test_what_cannot_be_recorded_goes_on_as_it_is(monkeypatch, part):
    def full(*arguments):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(engine, part, full)
    plain, ours = both()
    take(range(WARM_UP), plain, ours)
    take([WARM_UP], plain)
    with pytest.warns(UserWarning, match="is not replayed: recording one failed.*no room"):
        take([WARM_UP], ours)
    take(range(STEPS), plain, ours)  # without another warning
    assert_same(plain, ours)
    assert ours.balancer.engine.failed is not None


def test_a_recording_that_is_interrupted_is_made_at_the_next_step(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    plain, ours = both()
    take(range(WARM_UP), plain, ours)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "Recording", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ours.balancer.backward(ours.compute(*one_batch(0)))
    take(range(STEPS), plain, ours)
    assert recorded(ours.balancer) == 1
    assert_same(plain, ours)


def test_recordings_are_let_go_where_a_balancer_moves_elsewhere():
    one = world()
    take(range(STEPS), one)
    one.balancer.to(DEVICE)
    assert recorded(one.balancer) == 1
    one.balancer.to("meta")
    assert recorded(one.balancer) == 0


@on_cuda
def test_a_balancer_nobody_holds_is_gone_at_once():
    one = world()
    take(range(STEPS), one)
    assert recorded(one.balancer) == 1
    balancer = weakref.ref(one.balancer)
    gc.disable()
    try:
        del one.balancer
        assert balancer() is None
    finally:
        gc.enable()
