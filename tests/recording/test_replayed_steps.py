"""Replay: a call is a training step, recorded or not. What a CUDA device alone can show: test_replayed_on_cuda.py."""

import copy
import pickle
from collections import namedtuple
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import excessmtl
from excessmtl.recording import replay as replay_module
from excessmtl.recording.cache import MOST, GraphCache
from excessmtl.recording.optimizer import OptimizerSteps
from excessmtl.recording.recording import WARM_UP
from excessmtl.recording.static_inputs import Arguments, StaticInputs
from models import FEATURES, WIDTH
from replay_world import World, assert_same, batches

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


def test_gradients_are_those_of_the_call_alone_even_of_heads_it_does_not_reach():
    world = World("uniform")
    replay = excessmtl.Replay(world.balancer, world.compute)
    x, targets = batches(1)[0]
    replay(x, targets)
    once = {name: p.grad.clone() for name, p in world.model.named_parameters()}
    replay(x, targets)
    assert all(torch.equal(p.grad, once[name]) for name, p in world.model.named_parameters())
    replay(x, {**targets, "b": None})
    assert world.model.heads["b"].weight.grad is None
    assert world.model.heads["a"].weight.grad is not None


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


def test_numbers_from_the_host_are_refused():
    world = World("dtp")
    replay = excessmtl.Replay(world.balancer, lambda x, y: (world.compute(x, y), {"metrics": {"a": 0.5}}))
    with pytest.raises(ValueError, match="compute returned the option 'metrics'"):
        replay(*batches(1)[0])


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda losses: None, "found NoneType"),
        (lambda losses: sum(losses.values()), "found Tensor"),
        (lambda losses: (losses, losses["a"]), "found dict, Tensor"),
        (lambda losses: tuple(losses.values()), "found Tensor, Tensor"),
    ],
)
def test_anything_but_losses_is_refused(returned, words):
    world = World("uniform")
    replay = excessmtl.Replay(world.balancer, lambda x, y: returned(world.compute(x, y)))
    with pytest.raises(ValueError, match=f"compute must return a dict from task to loss.*{words}"):
        replay(*batches(1)[0])


@pytest.mark.parametrize("method", ["rlw", "graddrop", "pcgrad", "moml"])
def test_methods_that_decide_on_the_host_say_so(method):
    world = World(method)
    assert method in world.replay()._obstacle(torch.device("cuda"))


def test_nothing_is_recorded_between_micro_batches(monkeypatch):
    world = World("excess")
    cuda = torch.device("cuda")
    assert world.replay()._obstacle(cuda) is None
    world.balancer.backward(world.compute(*batches(1)[0]), accumulate=True)
    assert "micro-batches" in world.replay()._obstacle(cuda)
    monkeypatch.setattr(replay_module, "processes", lambda: 2)
    assert "several processes" in world.replay()._obstacle(cuda)


# ------------------------------------------------------------------ with a stand-in for the graph


class Again:
    """Stands in for a recording: runs the work anew, into the tensors it left the first time."""

    parameters = ()

    def __init__(self, work, memory, stream, pool=None):
        self.work, self.replays = work, 0
        before = copy.deepcopy(memory.state_dict())
        self.result = work()
        self.gradients = [(p, p.grad) for p in Again.parameters if p.grad is not None]
        memory.load_state_dict(before)

    def replay(self):
        self.replays += 1
        self.result.copy_(self.work())
        for parameter, gradient in self.gradients:
            gradient.copy_(parameter.grad)
            parameter.grad = None  # as if no line of Python had run


@pytest.fixture
def recorder(monkeypatch):
    """Recordings on a CPU; the list of those that were made."""
    made = []

    def record(*arguments):
        made.append(Again(*arguments))
        return made[-1]

    monkeypatch.setattr(replay_module, "Recording", record)
    monkeypatch.setattr(replay_module, "on_stream", lambda stream, device: nullcontext())
    monkeypatch.setattr(excessmtl.Replay, "_obstacle", lambda self, device: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: object())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    return made


def both(method="excess", **options):
    plain, ours = World(method, **options), World(method, **options)
    Again.parameters = list(ours.model.parameters())
    return plain, ours, ours.replay()


def test_a_step_is_recorded_after_the_first_ones(recorder):
    plain, ours, replay = both()
    for number, batch in enumerate(batches(9)):
        plain.step(*batch)
        ours.take(replay, *batch)
        assert len(recorder) == (number >= WARM_UP)
        assert replay.reason is None
    assert_same(plain, ours)
    assert ours.balancer.steps == 9


def test_steps_that_were_kept_stay_what_they_were(recorder):
    plain, ours, replay = both()
    pairs = [(plain.step(*batch), ours.take(replay, *batch)) for batch in batches(8)]
    for expected, found in pairs:
        for name in ("weights", "losses", "excess_risks", "left_out"):
            assert torch.equal(getattr(expected, name), getattr(found, name))


def test_a_smaller_batch_in_between_runs_as_it_is_with_the_same_state(recorder):
    plain, ours, replay = both()
    given = batches(10)
    x, targets = given[6]
    given[6] = (x[:3], {task: target[:3] for task, target in targets.items()})
    for batch in given:
        plain.step(*batch)
        ours.take(replay, *batch)
    assert len(recorder) == 1
    assert_same(plain, ours)


def test_batches_with_other_labels_have_a_recording_of_their_own(recorder):
    plain, ours, replay = both()
    for number, (x, targets) in enumerate(batches(14)):
        present = targets if number % 2 else {**targets, "b": None}
        plain.step(x, present)
        ours.take(replay, x, present)
    assert len(recorder) == 2
    assert_same(plain, ours)


def test_other_numbers_among_the_arguments_are_another_kind(recorder):
    _, ours, _ = both()
    seen = []

    def compute(x, targets, factor):
        seen.append(factor)
        return {task: factor * loss for task, loss in ours.compute(x, targets).items()}

    replay = excessmtl.Replay(ours.balancer, compute)
    for factor in (1, 1, 1, 1, 1, 2, True):
        replay(*batches(1)[0], factor)
    assert len(recorder) == 1
    assert seen[-2:] == [2, True]


def test_more_kinds_than_there_may_be_run_as_they_are(recorder):
    plain, ours, replay = both()
    for size in range(2, 2 + MOST + 1):
        for batch in batches(WARM_UP + 2, size):
            plain.step(*batch)
            ours.take(replay, *batch)
    assert len(recorder) == MOST
    assert "kinds of batches" in replay.reason
    assert_same(plain, ours)


def test_arguments_that_cannot_be_compared_run_as_they_are(recorder):
    _, ours, _ = both()
    replay = excessmtl.Replay(ours.balancer, lambda batch: ours.compute(*batch.pair))
    for pair in batches(5):
        holder = type("Holder", (), {"pair": pair})()
        replay(holder)
    assert not recorder
    assert "Holder" in replay.reason


def test_an_input_that_wants_its_gradient_gets_it(recorder):
    _, _, replay = both()
    for x, targets in batches(6):
        x.requires_grad_()
        replay(x, targets)
        assert x.grad is not None
    assert not recorder


def test_freezing_or_moving_a_parameter_ends_the_recordings(recorder):
    plain, ours, replay = both()
    for number, batch in enumerate(batches(18)):
        for world in (plain, ours):
            weight = world.model.heads["a"].weight
            if number == 6:
                weight.requires_grad_(False)
            if number == 12:
                weight.data = weight.data.clone()
        plain.step(*batch)
        ours.take(replay, *batch)
    assert len(recorder) == 3
    assert_same(plain, ours)


def test_parameters_that_went_away_and_came_back_end_the_recordings(recorder):
    _, ours, replay = both()
    for number, batch in enumerate(batches(12)):
        if number == 6:  # as `model.cpu()` and `model.cuda()` do: freed memory is given out again, at the same address
            weight = ours.model.trunk[0].weight
            address, value = weight.data_ptr(), weight.data.clone()
            weight.data = torch.empty(0)
            places = [value.clone() for _ in range(50)]
            weight.data = next((place for place in places if place.data_ptr() == address), places[0])
        ours.take(replay, *batch)
    assert len(recorder) == 2


class LouderInTraining(nn.Module):
    def forward(self, x):
        return 2 * x if self.training else x


def test_a_part_of_the_trunk_in_evaluation_mode_ends_the_recordings(recorder):
    plain, ours, replay = both(trunk=lambda: nn.Sequential(nn.Linear(FEATURES, WIDTH), LouderInTraining()))
    for number, batch in enumerate(batches(12)):
        if number == 6:
            for world in (plain, ours):
                world.model.trunk[1].eval()
        plain.step(*batch)
        ours.take(replay, *batch)
    assert len(recorder) == 2
    assert_same(plain, ours)


def test_another_device_starts_anew(recorder, monkeypatch):
    synchronised, devices = [], ["cuda:0"]
    monkeypatch.setattr(torch.cuda, "synchronize", synchronised.append)
    monkeypatch.setattr(excessmtl.Balancer, "device", property(lambda self: torch.device(devices[-1])))
    monkeypatch.setattr(replay_module, "moved_to_device", lambda batch, device: batch)
    static = StaticInputs
    monkeypatch.setattr(replay_module, "StaticInputs", lambda like, device: static(like, torch.device("cpu")))
    _, ours, replay = both()
    for number, batch in enumerate(batches(10)):
        if number == 5:
            devices.append("cuda:1")
        ours.take(replay, *batch)
    assert synchronised == [torch.device("cuda:0")]
    assert len(recorder) == 2
    devices.append("cpu")
    replay.reset()
    assert synchronised[-1] == torch.device("cuda:1")


def test_two_replays_of_one_balancer_share_its_state(recorder):
    plain, ours, one = both()
    two = ours.replay()
    for number, batch in enumerate(batches(14)):
        plain.step(*batch)
        ours.take((one, two)[number % 2], *batch)
    assert len(recorder) == 2
    assert_same(plain, ours)


def test_copies_of_the_balancer_are_not_moved_by_replayed_steps(recorder):
    _, ours, replay = both()
    given = batches(8)
    for batch in given[:6]:
        ours.take(replay, *batch)
    copies = [copy.deepcopy(ours.balancer), pickle.loads(pickle.dumps(ours.balancer))]
    before = ours.balancer.weights.clone()
    for batch in given[6:]:
        ours.take(replay, *batch)
    assert not torch.equal(ours.balancer.weights, before)
    assert all(torch.equal(one.weights, before) for one in copies)


def test_replayed_steps_are_the_last_step_and_are_looked_at(recorder):
    _, ours, replay = both()
    for batch in batches(6):
        assert ours.take(replay, *batch) is ours.balancer.last_step
    x, targets = batches(1)[0]
    with pytest.warns(UserWarning, match="every task of a step was left out"):
        ours.take(replay, x * torch.nan, targets)
    assert recorder[0].replays == 4


def test_a_saved_state_stays_what_it_was(recorder):
    _, ours, replay = both()
    given = batches(8)
    for batch in given[:6]:
        ours.take(replay, *batch)
    saved = ours.balancer.state_dict()
    kept = copy.deepcopy(saved)
    x, targets = given[6]
    ours.take(replay, x, {**targets, "b": targets["b"] * torch.nan})
    assert ours.balancer.skipped.sum() == 1
    saved.pop("memory._extra_state"), kept.pop("memory._extra_state")
    torch.testing.assert_close(saved, kept, rtol=0, atol=0, equal_nan=True)


def test_the_end_of_an_epoch_reaches_the_recording(recorder):
    plain, ours, replay = both("dwa")
    for number, batch in enumerate(batches(12)):
        plain.step(*batch)
        ours.take(replay, *batch)
        if number % 3 == 2:
            plain.balancer.end_epoch()
            ours.balancer.end_epoch()
    assert_same(plain, ours)


def test_estimating_every_other_step_makes_two_recordings(recorder):
    plain, ours, replay = both(every=2)
    for batch in batches(12):
        plain.step(*batch)
        ours.take(replay, *batch)
    assert len(recorder) == 2
    assert_same(plain, ours)


def test_evaluation_mode_and_scale_are_part_of_the_kind(recorder):
    _, ours, replay = both()
    for batch in batches(5):
        ours.take(replay, *batch)
    (recording,) = recorder
    assert recording.replays == 2
    ours.model.eval()
    ours.take(replay, *batches(1)[0])
    ours.model.train()
    ours.balancer.scale = 2.0
    ours.take(replay, *batches(1)[0])
    assert recording.replays == 2
    ours.balancer.scale = "sum"
    ours.take(replay, *batches(1)[0])
    assert recording.replays == 3


def test_a_step_that_cannot_be_recorded_is_taken_as_it_is(recorder, monkeypatch):
    def fail(work, memory, stream, pool):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(replay_module, "Recording", fail)
    plain, ours, replay = both()
    given = batches(8)
    for batch in given[:WARM_UP]:
        plain.step(*batch)
        ours.take(replay, *batch)
    with pytest.warns(UserWarning, match="not replayed: recording one failed .operation not permitted"):
        ours.take(replay, *given[WARM_UP])
    plain.step(*given[WARM_UP])
    for batch in given[WARM_UP + 1 :]:  # no second warning
        plain.step(*batch)
        ours.take(replay, *batch)
    assert "operation not permitted" in replay.reason
    assert_same(plain, ours)


def test_an_error_of_the_step_itself_is_raised_by_it(recorder, monkeypatch):
    _, ours, replay = both()
    for batch in batches(WARM_UP):
        replay(*batch)
    monkeypatch.setattr(ours, "fault", "no such file")
    with pytest.warns(UserWarning, match="not replayed"), pytest.raises(OSError, match="no such file"):
        replay(*batches(1)[0])


def test_ctrl_c_while_recording_leaves_nothing_behind(recorder, monkeypatch):
    def interrupted(work, memory, stream, pool):
        before = copy.deepcopy(memory.state_dict())
        work()
        memory.load_state_dict(before)
        raise KeyboardInterrupt

    plain, ours, replay = both()
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
    assert len(recorder) == 1
    assert_same(plain, ours)


def test_reset_starts_anew(recorder):
    _, ours, replay = both()
    for number, batch in enumerate(batches(10)):
        if number == 5:
            replay.reset()
        ours.take(replay, *batch)
    assert len(recorder) == 2


# ------------------------------------------------------------------ parts


def test_looks_tell_shapes_types_and_values_apart():
    x = torch.zeros(2, 3)
    kinds = [
        Arguments(arguments).look
        for arguments in [(x,), (x.double(),), (x.T,), (x, None), (x, 1), (x, 1.0), (x, True), ({"a": x},), ([x],)]
    ]
    for index, kind in enumerate(kinds):
        assert [kind == other for other in kinds].count(True) == 1, index
    assert Arguments((torch.ones(2, 3),)).look == kinds[0]
    assert Arguments((x.to_sparse(),)).obstacle is not None
    Batch = namedtuple("Batch", "x")
    assert Arguments((Batch(x),)).obstacle is None
    assert Arguments((Batch(x),)).look != kinds[0]


def test_a_kind_that_was_never_recorded_makes_room():
    cache = GraphCache()
    cache.entry(("kept",)).recorded = object()
    for number in range(20):
        assert cache.entry((number,)).taken == 0
        assert cache.entry(("kept",)).recorded is not None
    waiting = cache.entry(("waiting",))
    for number in range(20):  # as long as it is seen now and then, it stays
        cache.entry((number,))
        assert cache.entry(("waiting",)) is waiting


class TestOptimizerSteps:
    def adam(self, **options):
        return torch.optim.Adam([nn.Parameter(torch.ones(2))], lr=0.1, capturable=True, **options)

    def test_only_capturable_optimisers_are_recorded(self):
        sgd = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
        assert OptimizerSteps(self.adam()).inside
        assert not OptimizerSteps(sgd).inside
        hooked = self.adam()
        hooked.register_step_post_hook(lambda *arguments: None)
        assert not OptimizerSteps(hooked).inside

    def test_learning_rates_stay_in_their_place_whoever_changes_them(self):
        adam = self.adam()
        scheduler = torch.optim.lr_scheduler.LambdaLR(adam, lambda epoch: 0.5**epoch)
        stepping = OptimizerSteps(adam)
        stepping.settle(torch.device("cpu"))
        place = adam.param_groups[0]["lr"]
        assert place.item() == pytest.approx(0.1)
        adam._opt_called = True  # or the scheduler wonders why nothing was stepped
        scheduler.step()
        assert adam.param_groups[0]["lr"] is place
        assert place.item() == pytest.approx(0.05)
        for value in (0.3, torch.tensor([0.4]), torch.tensor(0.5)):
            adam.param_groups[0]["lr"] = value
            stepping.settle(torch.device("cpu"))
            assert adam.param_groups[0]["lr"] is place
            assert place.item() == pytest.approx(float(value))

    def test_a_loaded_state_and_other_settings_end_the_recordings(self):
        adam = self.adam()
        stepping = OptimizerSteps(adam)
        stepping.settle(torch.device("cpu"))
        stepping.note_recorded()
        assert stepping.still_recorded()
        adam.load_state_dict(adam.state_dict())
        assert not stepping.still_recorded()
        assert stepping.inside
        stepping.note_recorded()
        torch.optim.lr_scheduler.ExponentialLR(adam, 0.9)  # notes the first rate in the groups
        assert stepping.still_recorded()
        adam.param_groups[0]["weight_decay"] = 0.5
        assert not stepping.still_recorded()
        assert not stepping.inside
        assert stepping.still_recorded()

    def test_an_emptied_state_ends_the_recordings(self):
        parameter = nn.Parameter(torch.ones(2))
        sgd = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
        parameter.grad = torch.ones(2)
        sgd.step()
        stepping = OptimizerSteps(sgd)
        stepping.note_recorded()
        assert stepping.still_recorded()
        sgd.state.clear()
        sgd.step()  # there is a state again, not the one that was recorded
        assert not stepping.still_recorded()

    def test_learning_rates_follow_to_another_device(self):
        adam = self.adam()
        stepping = OptimizerSteps(adam)
        stepping.settle(torch.device("meta"))
        adam.param_groups[0]["lr"] = 0.2
        stepping.settle(torch.device("cpu"))
        assert adam.param_groups[0]["lr"].item() == pytest.approx(0.2)
