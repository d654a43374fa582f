"""Steps whose arithmetic comes from a recording are the steps themselves, bit for bit, whatever happens in between.

Without a CUDA device a stand-in does the work again (`recorded_world.py`); EXCESSMTL_TEST_DEVICE=cuda records it.
"""

import copy
import gc
import io
import weakref
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

import excessmtl
from excessmtl.methods.base import Decision, Rule
from excessmtl.recording import recorded as engine
from excessmtl.recording.cache import MOST
from excessmtl.recording.recording import WARM_UP
from models import DEVICE, METHODS, OUTPUTS, PAPER, ROBUST, TASKS, UNIFORM, WIDTH, rule_of
from recorded_world import HEADS, STEPS, World, assert_same, both, recorded, take

pytestmark = pytest.mark.usefixtures("recording")


def compare(*arguments, steps=STEPS, **options):
    plain, ours = both(*arguments, **options)
    take(range(steps), plain, ours)
    assert recorded(plain.balancer) == 0
    assert_same(plain, ours)
    return ours


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_method_takes_the_same_steps(method, heads):
    if method.name == "moml":
        pytest.skip("needs validation losses in every step, which are not recorded")
    ours = compare(method, heads)
    rule = rule_of(method)
    assert recorded(ours.balancer) == int(not rule.uses_host)


@pytest.mark.parametrize(
    "options",
    [{"heads": "weighted"}, {"scale": 3.0}, {"every": 2}, {"trust": 0.5}, {"every": 3, "heads": "weighted"}],
    ids=str,
)
def test_options_of_the_balancer(options):
    ours = compare(ROBUST, steps=3 * STEPS, **options)
    assert recorded(ours.balancer) == min(options.get("every", 1), 2)


@pytest.mark.parametrize("accumulators", ["fp32", "bf16"])
def test_state_that_is_brought_up_to_date_in_place(accumulators):
    assert recorded(compare(PAPER, accumulators=accumulators).balancer) == 1


@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_bad_and_missing_tasks_smaller_batches_and_masks(method):
    plain, ours = both(method)
    mask = {"a": torch.tensor([True] * 5 + [False] * 3, device=DEVICE)}
    batches = [{}, {}, {}, {}, {"bad": ["b"]}, {}, {"missing": ["c"]}, {"size": 5}, {"arguments": {"mask": mask}}, {}]
    for seed, batch in enumerate(3 * batches):
        for world in (plain, ours):
            world.step(seed, **batch)
    assert_same(plain, ours)
    assert ours.balancer.skipped.tolist() == [0, 3, 0]
    assert recorded(ours.balancer) == 1  # the other kinds of batches have been seen too seldom
    take(range(4), plain, ours, missing=["c"])
    assert_same(plain, ours)
    assert recorded(ours.balancer) == 2


def test_there_are_only_so_many_recordings():
    plain, ours = both()
    for size in range(4, 4 + MOST + 2):
        take(range(WARM_UP + 2), plain, ours, size=size)
    assert recorded(ours.balancer) == MOST
    assert_same(plain, ours)


def test_what_a_step_leaves_is_not_overwritten_by_the_next():
    ours = World()
    kept = []
    for seed in range(STEPS):
        z = []
        handle = ours.model.trunk.register_forward_hook(lambda module, inputs, output, z=z: z.append(output))
        losses = ours.losses(seed)
        z[0].retain_grad()
        handle.remove()
        for parameter in ours.model.parameters():
            parameter.grad = None
        step = ours.balancer.backward(losses)
        left = [step.numbers, z[0].grad, *(parameter.grad for parameter in ours.model.parameters())]
        kept.append((left, [tensor.clone() for tensor in left]))
    assert recorded(ours.balancer) == 1
    for left, copies in kept:
        torch.testing.assert_close(left, copies, rtol=0, atol=0, equal_nan=True)


def test_gradients_are_added_to_those_there_are():
    plain, ours = both()
    for seed in range(STEPS):
        for world in (plain, ours):
            world.balancer.backward(world.losses(seed))
    for wanted, found in zip(plain.model.parameters(), ours.model.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=0, atol=0)


def test_a_head_that_is_replaced_or_frozen_is_another_kind():
    plain, ours = both(UNIFORM)
    for seed in range(3 * STEPS):
        for world in (plain, ours):
            if seed == STEPS:
                torch.manual_seed(5)
                world.model.heads["a"] = nn.Linear(WIDTH, OUTPUTS["a"]).to(DEVICE)
            if seed == 2 * STEPS:
                world.model.heads["b"].bias.requires_grad_(False)
                world.model.heads["b"].bias.grad = None
            world.step(seed)
    assert recorded(ours.balancer) == 3
    assert_same(plain, ours)


def test_a_rule_that_is_exchanged():
    plain, ours = both()
    for seed in range(2 * STEPS):
        for world in (plain, ours):
            if seed == STEPS:
                world.balancer.rule = replace(world.balancer.rule, trust=0.1)
            world.step(seed)
    assert recorded(ours.balancer) == 2
    assert_same(plain, ours)


def test_weights_whose_memory_is_exchanged():
    plain, ours = both()
    for seed in range(2 * STEPS):
        for world in (plain, ours):
            if seed == STEPS:
                for parameter in world.model.parameters():
                    parameter.data = parameter.data * 0.5
            world.step(seed)
    assert recorded(ours.balancer) == 1
    assert_same(plain, ours)


def test_micro_batches_and_other_steps_in_between():
    plain, ours = both()
    for seed in range(STEPS):
        for world in (plain, ours):
            world.step(seed)
            world.optimiser.zero_grad()
            world.balancer.backward(world.losses(seed + 100), accumulate=True)
            world.balancer.backward(world.losses(seed + 200))
            world.balancer(world.losses(seed + 300)).backward()
    assert_same(plain, ours)
    assert recorded(ours.balancer) == 1


def test_epochs_that_end():
    plain, ours = both(next(method for method in METHODS if method.name == "dwa"))
    for seed in range(3 * STEPS):
        for world in (plain, ours):
            world.step(seed)
            if seed % 4 == 3:
                world.balancer.end_epoch()
    assert_same(plain, ours)


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "state_dict"])
def test_a_copy_goes_on_by_itself(way):
    plain, ours = both()
    for seed in range(STEPS):
        for world in (plain, ours):
            world.step(seed)
    if way == "deepcopy":
        copied = copy.deepcopy(ours)
    elif way == "pickle":
        file = io.BytesIO()
        torch.save(ours.balancer, file)
        file.seek(0)
        torch.load(file, weights_only=False)
        copied = copy.deepcopy(ours)
    else:
        copied = World()
        for part in ("model", "balancer", "optimiser"):
            getattr(copied, part).load_state_dict(copy.deepcopy(getattr(ours, part).state_dict()))
        copied.seen = list(ours.seen)
    assert recorded(copied.balancer) == 0
    take(range(STEPS, 2 * STEPS), plain, copied)
    assert_same(plain, copied)
    assert recorded(copied.balancer) == 1
    for seed in range(STEPS, 2 * STEPS):  # and what was copied has not moved
        ours.step(seed)
    assert_same(plain, ours)


def test_a_state_that_is_loaded_again():
    plain, ours = both()
    for world in (plain, ours):
        for seed in range(STEPS):
            world.step(seed)
        state = world.balancer.state_dict()
        for seed in range(STEPS):
            world.step(seed)
        world.balancer.load_state_dict(state)
        for seed in range(STEPS):
            world.step(seed)
    assert_same(plain, ours)


@pytest.mark.parametrize(("largest", "kinds"), [(1000, 0), (1500, 1)])
def test_large_tensors_are_not_copied_into_a_recording(monkeypatch, largest, kinds):
    """Of linear heads: z [8, 16] and their weights [6, 16], not a gradient at z for each of them; 4 bytes a number."""
    monkeypatch.setattr(engine, "_LARGEST", largest)
    assert recorded(compare().balancer) == kinds


class Drawing(Rule):
    """Draws from the balancer's random stream, and does not say so."""

    name = "drawing"

    def update(self, state, seen):
        drawn = float(torch.rand((), generator=seen.generator))
        return Decision(torch.full_like(seen.losses, drawn), state)


class Reading(Rule):
    """Reads from the device, and does not say so."""

    name = "reading"

    def update(self, state, seen):
        return Decision(torch.full_like(seen.losses, seen.losses.sum().item()), state)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="the stand-in does what a recording cannot")
@pytest.mark.parametrize(("rule", "complaint"), [(Drawing, "random numbers"), (Reading, "captur")])
def test_rules_that_cannot_be_recorded_and_do_not_say_so(rule, complaint):
    found = []
    for record in (False, True):
        world = World()
        world.balancer = excessmtl.Balancer(rule(), TASKS, world.model.trunk, record=record)
        steps = range(WARM_UP)
        found.append([world.step(seed).weights for seed in steps])
        with pytest.warns(UserWarning, match=complaint) if record else nullcontext():
            world.step(WARM_UP)
        stream = torch.cuda.current_stream()
        found[-1] += [world.step(seed).weights for seed in range(STEPS)]
        assert torch.cuda.current_stream() == stream == torch.cuda.default_stream()
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    # Nothing is left of the attempt: random numbers, memory and other recordings are as ever.
    assert torch.randn(8, device=DEVICE).isfinite().all()
    torch.cuda.empty_cache()
    assert recorded(compare().balancer) == 1


@pytest.mark.parametrize("host", [False, True])
def test_a_rule_is_recorded_unless_it_uses_the_host(host):
    class Half(Rule):
        name, uses_host = "half", host

        def update(self, state, seen):
            return Decision(torch.full_like(seen.losses, 0.5), state)

    world = World()
    world.balancer = excessmtl.Balancer(Half(), TASKS, world.model.trunk)
    for seed in range(STEPS):
        world.step(seed)
    assert recorded(world.balancer) == (0 if host else 1)


def test_a_balancer_nobody_holds_is_gone_at_once():
    world = World()
    for seed in range(STEPS):
        world.step(seed)
    assert recorded(world.balancer) == 1
    if DEVICE.type != "cuda":
        return  # the stand-in holds it
    balancer = weakref.ref(world.balancer)
    gc.disable()
    try:
        del world.balancer
        assert balancer() is None
    finally:
        gc.enable()


def test_what_cannot_be_recorded_goes_on_as_it_is(monkeypatch):
    class Refusing:
        def __init__(self, *arguments):
            raise RuntimeError("no room for a graph")

    monkeypatch.setattr(engine, "Recording", Refusing)
    plain, ours = both()
    take(range(WARM_UP), plain, ours)
    plain.step(WARM_UP)
    with pytest.warns(UserWarning, match="is not replayed: recording one failed.*no room for a graph"):
        ours.step(WARM_UP)
    take(range(STEPS), plain, ours)  # without another warning
    assert_same(plain, ours)
    assert ours.balancer.engine.failed is not None


def test_whoever_keeps_a_step_keeps_no_gradients():
    world = World()
    for seed in range(STEPS):
        numbers = world.step(seed).numbers
    assert recorded(world.balancer) == 1
    assert numbers.untyped_storage().nbytes() == numbers.nbytes
