"""Recorded steps in unusual company: rules that shuffle their state, batches that are refused, steps that are kept."""

import pytest
import torch
from torch import nn

import excessmtl
from excessmtl.methods.base import Decision, Rule
from excessmtl.recording import recorded as engine
from excessmtl.recording.recording import WARM_UP
from models import DEVICE, PAPER, ROBUST, TASKS, UNIFORM
from recorded_world import STEPS, World, assert_same, both, recorded, take

pytestmark = pytest.mark.usefixtures("recording")


@pytest.mark.parametrize("method", [ROBUST, PAPER], ids=str)
def test_a_step_that_is_kept_keeps_no_gradients(method):
    world = World(method)
    for seed in range(STEPS):
        numbers = world.step(seed).numbers
        assert numbers.untyped_storage().nbytes() == numbers.nbytes
    assert recorded(world.balancer) == 1


class HandedOn(Rule):
    """Remembers the losses of the step before under another name, in the very tensor that held them."""

    name = "handed on"

    def init(self, tasks, shared):
        return {"now": torch.zeros(tasks), "before": torch.zeros(tasks)}

    def update(self, state, seen):
        return Decision(state["before"].softmax(0), {"now": seen.losses, "before": state["now"]})


class OneForTwo(Rule):
    """Has one tensor under two names from the end of an epoch on."""

    name = "one for two"

    def init(self, tasks, shared):
        return {"sum": torch.zeros(tasks), "at_start": torch.zeros(tasks)}

    def update(self, state, seen):
        weights = (state["sum"] - state["at_start"]).softmax(0)
        return Decision(weights, {**state, "sum": state["sum"] + seen.losses})

    def end_epoch(self, state):
        return {**state, "at_start": state["sum"].view(-1)}


@pytest.mark.parametrize("rule", [HandedOn, OneForTwo])
def test_a_rule_that_hands_a_tensor_on_to_another_name(rule):
    worlds = []
    for record in (False, True):
        world = World()
        world.balancer = excessmtl.Balancer(rule(), TASKS, world.model.trunk, record=record)
        for seed in range(2 * STEPS):
            world.step(seed)
            if seed in (WARM_UP - 1, STEPS):
                world.balancer.end_epoch()
        worlds.append(world)
    plain, ours = worlds
    assert recorded(ours.balancer) == 1
    assert_same(plain, ours)


@pytest.mark.parametrize("rule", [HandedOn, OneForTwo])
def test_a_state_is_loaded_as_it_was_saved_whatever_a_rule_hands_on(rule):
    world = World()
    world.balancer = excessmtl.Balancer(rule(), TASKS, world.model.trunk, record=False)
    world.step(0)
    world.step(1)
    saved = world.balancer.state_dict()
    world.balancer.end_epoch()
    world.balancer.load_state_dict(saved)
    found = world.balancer.state_dict()
    for state in (saved, found):
        state.pop("memory._extra_state")
    torch.testing.assert_close(found, saved, rtol=0, atol=0)


def test_batches_that_are_refused_do_not_count():
    plain, ours = both()
    short = {"a": torch.ones(5, dtype=torch.bool, device=DEVICE)}
    for seed in range(WARM_UP + 2):
        with pytest.raises(ValueError, match="mask has 5 entries for a batch of 8"):
            ours.balancer.backward(ours.losses(seed), mask=short)
    assert ours.balancer.engine.failed is None
    take(range(STEPS), plain, ours)
    assert recorded(ours.balancer) == 1
    assert_same(plain, ours)


def test_no_memory_for_the_places_of_a_recording(monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("no room")

    plain, ours = both()
    monkeypatch.setattr(engine, "StaticInputs", full)
    for seed in range(STEPS):
        plain.step(seed)
        if seed == WARM_UP:
            with pytest.warns(UserWarning, match="is not replayed: recording one failed.*no room"):
                ours.step(seed)
        else:
            ours.step(seed)
    assert_same(plain, ours)


def test_another_setting_of_torch_is_another_kind(monkeypatch):
    world = World()
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for precision in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = precision
            for seed in range(STEPS):
                world.step(seed)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert recorded(world.balancer) == 2
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)  # cuBLAS would ask for more
    for seed in range(STEPS):
        world.step(seed)
    assert recorded(world.balancer) == 3


class LaidOut(nn.Module):
    """The same values, in one order in memory or the other."""

    turned = False

    def forward(self, z):
        return z.t().contiguous().t() if self.turned else z


def test_another_layout_in_memory_is_another_kind():
    plain, ours = both()
    for world in (plain, ours):
        world.model.trunk.append(LaidOut())
    for seed in range(3 * STEPS):
        for world in (plain, ours):
            world.model.trunk[-1].turned = seed % 3 == 0
            world.step(seed)
    assert recorded(ours.balancer) == 2
    assert_same(plain, ours)


def refuse(gradient):
    raise RuntimeError("no further")


@pytest.mark.parametrize("method", [ROBUST, UNIFORM, PAPER], ids=str)
def test_a_step_that_fails_in_the_trunk_does_not_count_and_the_next_goes_on(method):
    plain, ours = both(method)
    for world in (plain, ours):
        for seed in range(STEPS):
            world.step(seed)
        world.optimiser.zero_grad()
    hook = ours.model.trunk[0].weight.register_hook(refuse)
    with pytest.raises(RuntimeError, match="no further"):
        ours.balancer.backward(ours.losses(STEPS))
    hook.remove()
    assert all(parameter.grad is None for parameter in ours.model.parameters())
    take(range(STEPS), plain, ours)
    assert recorded(ours.balancer) == 1
    assert_same(plain, ours)


def test_a_recording_that_is_interrupted_is_made_at_the_next_step(monkeypatch):
    class Interrupted:
        def __init__(self, *arguments):
            raise KeyboardInterrupt

    plain, ours = both()
    take(range(WARM_UP), plain, ours)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "Recording", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            ours.balancer.backward(ours.losses(0))
    take(range(STEPS), plain, ours)
    assert recorded(ours.balancer) == 1
    assert_same(plain, ours)


def test_recordings_are_let_go_where_a_balancer_moves_elsewhere():
    world = World()
    for seed in range(STEPS):
        world.step(seed)
    world.balancer.to(DEVICE)
    assert recorded(world.balancer) == 1
    world.balancer.to("meta")
    assert recorded(world.balancer) == 0
