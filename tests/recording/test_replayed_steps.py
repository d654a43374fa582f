"""Replay: a call is a training step, recorded or not, whatever happens in between.

Steps are recorded on a CUDA device where there is one, and always by a stand-in (`recorded_world.py`).
"""

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

import excessmtl
from excessmtl.recording import replay as replay_module
from excessmtl.recording.recording import MOST, WARM_UP, Recording
from models import FEATURES, WIDTH
from recorded_world import StandInStep, World, assert_same, batches, stand_in

# ------------------------------------------------------------------ on a CPU


def test_on_a_cpu_calls_are_plain_steps():
    plain, ours = World("excess"), World("excess")
    replay = ours.replay()
    for batch in batches(6):
        plain.step(*batch)
        ours.take(replay, *batch)
    assert_same(plain, ours)
    assert "device cpu" in replay.reason
    assert ours.calls == 6


def test_with_an_optimizer_a_call_is_all_there_is_to_do():
    plain, ours = World("excess"), World("excess")
    replay = excessmtl.Replay(ours.balancer, ours.compute, ours.optimizer)
    for batch in batches(4):
        plain.step(*batch)
        replay(*batch)
    assert_same(plain, ours)


def test_compute_may_name_the_representation_and_the_masks():
    world = World("excess", parameters=True)

    def compute(x, targets):
        z = world.model.trunk(x)
        return world.losses(z, targets), {"at": z, "mask": {"a": torch.ones(len(x), dtype=torch.bool)}}

    step = excessmtl.Replay(world.balancer, compute)(*batches(1)[0])
    assert step.excess_risks.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda w: (w.model, w.compute), "balancer must be a Balancer, found MultiTask"),
        (lambda w: (w.balancer, 3), "compute must be a function"),
        (lambda w: (w.balancer, w.compute, 0.1), "optimizer must be a torch optimiser, found float"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        excessmtl.Replay(*arguments(World("uniform")))


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda losses: None, "compute must return a dict from task to loss.*found NoneType"),
        (lambda losses: sum(losses.values()), "compute must return.*found Tensor"),
        (lambda losses: (losses, losses["a"]), "compute must return.*found dict, Tensor"),
        (lambda losses: tuple(losses.values()), "compute must return.*found Tensor, Tensor"),
        (lambda losses: (losses, {"metrics": {"a": 0.5}}), "compute returned the option 'metrics'"),
    ],
)
def test_anything_but_losses_is_refused(returned, words):
    world = World("dtp")
    replay = excessmtl.Replay(world.balancer, lambda x, y: returned(world.compute(x, y)))
    with pytest.raises(ValueError, match=words):
        replay(*batches(1)[0])


def test_what_stands_in_the_way_of_recording_is_named(monkeypatch):
    cuda = torch.device("cuda")
    for method in ("rlw", "graddrop", "pcgrad", "moml"):
        assert method in World(method).replay()._obstacle(cuda)
    world = World("excess")
    assert world.replay()._obstacle(cuda) is None
    world.balancer.backward(world.compute(*batches(1)[0]), accumulate=True)
    assert "micro-batches" in world.replay()._obstacle(cuda)
    monkeypatch.setattr(replay_module, "processes", lambda: 2)
    assert "several processes" in world.replay()._obstacle(cuda)


# ------------------------------------------------------------------ what happens between replayed steps


@pytest.fixture(params=["stand-in", "cuda"])
def made(request, monkeypatch):
    """The recordings that are made; `made.device` is where."""
    recordings = []
    if request.param == "stand-in":
        stand_in(monkeypatch, recordings)
        return "cpu", recordings
    if not torch.cuda.is_available():
        pytest.skip("CUDA graphs need a CUDA device")

    def record(*arguments):
        recordings.append(Recording(*arguments))
        return recordings[-1]

    monkeypatch.setattr(replay_module, "Recording", record)
    return "cuda", recordings


def both(device, method="excess", **options):
    plain, ours = World(method, device, **options), World(method, device, **options)
    StandInStep.parameters = list(ours.model.parameters())
    return plain, ours, ours.replay()


class LouderInTraining(nn.Module):
    def forward(self, x):
        return 2 * x if self.training else x


@dataclass(frozen=True)
class Scenario:
    """Steps, and what happens before (`change`) and after them."""

    recordings: int
    method: str = "excess"
    options: dict = field(default_factory=dict)
    steps: int = 12
    batch: Callable[[int, Any, Any], tuple[Any, Any]] = lambda number, x, targets: (x, targets)
    change: Callable[[World, int], None] = lambda world, number: None
    after: Callable[[World, int], None] = lambda world, number: None
    by_hand: Callable[[int], bool] = lambda number: False


def without_b(number, x, targets):
    return x, {**targets, "b": targets["b"] if number % 2 else None}


def last_of_an_epoch(number, x, targets):
    size = 5 if number % 3 == 2 else 8
    return x[:size], {task: None if task == "b" and number % 2 else target[:size] for task, target in targets.items()}


def more_sizes_than_there_may_be(number, x, targets):
    size = 2 + number // (WARM_UP + 2)
    return x[:size], {task: target[:size] for task, target in targets.items()}


def one_bad(number, x, targets):
    return x, {**targets, "b": targets["b"] * (torch.nan if number == 7 else 1)}


def freeze_and_move_a_parameter(world, number):
    weight = world.model.heads["a"].weight
    if number == 6:
        weight.requires_grad_(False)
    if number == 12:
        weight.data = weight.data.clone()


def evaluate_a_part(world, number):
    if number == 6:
        world.model.trunk[1].eval()


def end_epochs(world, number):
    if number % 3 == 2:
        world.balancer.end_epoch()


LOUDER = {"trunk": lambda: nn.Sequential(nn.Linear(FEATURES, WIDTH), LouderInTraining())}
SCENARIOS = {
    "nothing": Scenario(1),
    "smaller batches, and labels missing": Scenario(4, steps=30, batch=last_of_an_epoch),
    "too many kinds": Scenario(MOST, steps=(MOST + 1) * (WARM_UP + 2), batch=more_sizes_than_there_may_be),
    "a bad task": Scenario(1, batch=one_bad),
    "frozen and moved parameters": Scenario(3, steps=18, change=freeze_and_move_a_parameter),
    "a part in evaluation mode": Scenario(2, options=LOUDER, change=evaluate_a_part),
    "ends of epochs": Scenario(1, "dwa", after=end_epochs),
    "steps by hand": Scenario(1, steps=16, by_hand=lambda number: number % 5 == 4),
    "every other step": Scenario(2, options={"every": 2}, steps=14),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_between_steps_makes_a_difference(made, name):
    (device, recordings), scenario = made, SCENARIOS[name]
    plain, ours, replay = both(device, scenario.method, **scenario.options)
    for number, given in enumerate(batches(scenario.steps, device=device)):
        batch = scenario.batch(number, *given)
        for world in (plain, ours):
            scenario.change(world, number)
        plain.step(*batch)
        ours.step(*batch) if scenario.by_hand(number) else ours.take(replay, *batch)
        for world in (plain, ours):
            scenario.after(world, number)
        assert (replay.reason is None) == (name != "too many kinds" or number < MOST * (WARM_UP + 2))
    assert_same(plain, ours)
    assert len(recordings) == scenario.recordings
    assert ours.balancer.steps == scenario.steps


def test_batches_that_cannot_be_recorded_run_as_they_are(made):
    device, recordings = made
    _, ours, _ = both(device)
    replay = excessmtl.Replay(ours.balancer, lambda batch: ours.compute(*batch.pair))
    for pair in batches(5, device=device):
        replay(type("Holder", (), {"pair": pair})())
    assert "Holder" in replay.reason
    replay = ours.replay()
    for x, targets in batches(6, device=device):
        x.requires_grad_()
        replay(x, targets)
        assert x.grad is not None
    assert not recordings


def test_copies_saved_states_and_kept_steps_stay_what_they_were(made):
    device, _ = made
    plain, ours, replay = both(device)
    given = batches(8, device=device)
    pairs = [(plain.step(*batch), ours.take(replay, *batch)) for batch in given[:6]]
    assert pairs[-1][1] is ours.balancer.last_step
    copies = [copy.deepcopy(ours.balancer), pickle.loads(pickle.dumps(ours.balancer))]
    saved, before = ours.balancer.state_dict(), ours.balancer.weights.clone()
    kept = copy.deepcopy(saved)
    x, targets = given[6]
    ours.take(replay, x, {**targets, "b": targets["b"] * torch.nan})
    assert ours.balancer.skipped.sum() == 1
    assert not torch.equal(ours.balancer.weights, before)
    assert all(torch.equal(one.weights, before) for one in copies)
    saved.pop("memory._extra_state"), kept.pop("memory._extra_state")
    torch.testing.assert_close(saved, kept, rtol=0, atol=0, equal_nan=True)
    for expected, found in pairs:
        torch.testing.assert_close(found.numbers, expected.numbers, rtol=0, atol=0, equal_nan=True)


# ------------------------------------------------------------------ what a stand-in alone can show


@pytest.fixture
def recordings(monkeypatch):
    return stand_in(monkeypatch, [])


def test_parameters_that_went_away_and_came_back_end_the_recordings(recordings):
    _, ours, replay = both("cpu")
    for number, batch in enumerate(batches(12)):
        if number == 6:  # as `model.cpu()` and `model.cuda()` do: freed memory is given out again, at the same address
            weight = ours.model.trunk[0].weight
            address, value = weight.data_ptr(), weight.data.clone()
            weight.data = torch.empty(0)
            places = [value.clone() for _ in range(50)]
            weight.data = next((place for place in places if place.data_ptr() == address), places[0])
        ours.take(replay, *batch)
    assert len(recordings) == 2


def test_replayed_steps_are_looked_at(recordings):
    _, ours, replay = both("cpu")
    for batch in batches(6):
        ours.take(replay, *batch)
    x, targets = batches(1)[0]
    with pytest.warns(UserWarning, match="every task of a step was left out"):
        ours.take(replay, x * torch.nan, targets)
    assert recordings[0].replays == 4


@pytest.mark.usefixtures("recordings")
def test_a_step_that_cannot_be_recorded_is_taken_as_it_is_and_raises_its_own_errors(monkeypatch):
    def fail(work, memory, stream, pool):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(replay_module, "Recording", fail)
    plain, ours, replay = both("cpu")
    for number, batch in enumerate(batches(8)):
        plain.step(*batch)
        expected = pytest.warns(UserWarning, match="not replayed: recording one failed .operation not permitted")
        with expected if number == WARM_UP else nullcontext():  # and no second warning
            ours.take(replay, *batch)
    assert "operation not permitted" in replay.reason
    assert_same(plain, ours)
    ours.fault = "no such file"
    with pytest.raises(OSError, match="no such file"):
        replay(*batches(1)[0])


def test_ctrl_c_while_recording_leaves_nothing_behind(recordings, monkeypatch):
    def interrupted(*arguments):
        StandInStep(*arguments)
        raise KeyboardInterrupt

    plain, ours, replay = both("cpu")
    given = batches(12)
    for batch in given[:WARM_UP]:
        plain.step(*batch)
        ours.take(replay, *batch)
    with monkeypatch.context() as patch:
        patch.setattr(replay_module, "Recording", interrupted)
        with pytest.raises(KeyboardInterrupt):
            replay(*given[WARM_UP])
    assert all(parameter.grad is None for parameter in ours.model.parameters())
    for batch in given[WARM_UP:]:
        plain.step(*batch)
        ours.take(replay, *batch)
    assert len(recordings) == 1
    assert_same(plain, ours)
