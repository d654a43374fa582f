"""Replayed steps are the steps themselves, bit for bit, whatever happens in between. Needs a CUDA device."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from excessmtl.recording.recording import WARM_UP
from models import FEATURES, WIDTH
from replay_world import World, assert_same, batches

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device"),
    # The plain steps that replayed ones are compared with use the same optimiser without a recording.
    pytest.mark.filterwarnings("ignore:.*capturable=True"),
]
METHODS = {
    "excess": {},
    "paper": {"estimator": "paper"},
    "paper-z": {"estimator": "paper", "probe": "representation"},
    "uniform": {},
    "imtl": {},
    "gradnorm": {},
    "mgda": {},
    "groupdro": {},
    "cagrad": {},
    "nash": {},
    "uw": {},
    "dtp": {},
}


@pytest.fixture(autouse=True)
def _exact():
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        yield
    gc.collect()


def world(method="excess", **options):
    return World(method.partition("-")[0].replace("paper", "excess"), "cuda", **METHODS.get(method, {}), **options)


def pair(method="excess", **options):
    plain, ours = world(method, **options), world(method, **options)
    return plain, ours, ours.replay()


def tensor_adam(fused):
    def make(parameters):
        return torch.optim.Adam(parameters, lr=torch.tensor(0.01, device="cuda"), capturable=True, fused=fused)

    return make


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_the_same_steps(method):
    plain, ours, replay = pair(method)
    for batch in batches(12, device="cuda"):
        plain.step(*batch)
        ours.take(replay, *batch)
    assert replay.reason is None
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


def test_convolutions_and_batch_statistics():
    def trunk():
        layers = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(8, WIDTH))

    plain, ours, replay = pair(trunk=trunk)
    for batch in batches(10, device="cuda"):
        plain.step(*batch)
        ours.take(replay, *batch)
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


class OnMaps(World):
    """Heads that look at every position of a map."""

    def losses(self, z, targets):
        heads = self.model.heads
        return {task: mse_loss(heads[task](z.flatten(2)).mean(1), y) for task, y in targets.items()}


@pytest.mark.parametrize("method", ["excess", "uniform"])
def test_maps(method):
    def trunk():
        return nn.Sequential(nn.Linear(FEATURES, 4 * WIDTH), nn.Unflatten(1, (4, 4, WIDTH // 4)), nn.Conv2d(4, 4, 1))

    plain, ours = (OnMaps(method, "cuda", trunk=trunk) for _ in range(2))
    replay = ours.replay()
    for batch in batches(10, device="cuda"):
        plain.step(*batch)
        ours.take(replay, *batch)
    assert replay.reason is None
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


def test_the_last_batch_of_an_epoch_and_missing_labels():
    plain, ours, replay = pair()
    sizes = [8, 8, 8, 8, 8, 5, 8, 8, 5, 8, 5, 5, 8, 5, 8]
    for number, size in enumerate(sizes * 2):
        x, targets = batches(1, size, "cuda", seed=number)[0]
        if number % 3 == 2:
            targets["b"] = None
        plain.step(x, targets)
        ours.take(replay, x, targets)
    assert replay.reason is None
    assert ours.calls == 4 * (WARM_UP + 1)
    assert_same(plain, ours)


def test_batches_from_pinned_and_plain_host_memory():
    plain, ours, replay = pair()
    for number, (x, targets) in enumerate(batches(12)):
        if number % 2:
            x, targets = x.pin_memory(), {task: target.pin_memory() for task, target in targets.items()}
        plain.step(x.cuda(), {task: target.cuda() for task, target in targets.items()})
        ours.take(replay, x, targets)
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


@pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
def test_a_capturable_optimiser_with_a_scheduler_is_part_of_the_recording(fused):
    plain, ours = world(optimizer=tensor_adam(fused)), world(optimizer=tensor_adam(fused))
    replay = excessmtl.Replay(ours.balancer, ours.compute, ours.optimizer)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(one.optimizer, 0.9) for one in (plain, ours)]
    for batch in batches(14, device="cuda"):
        plain.step(*batch)
        replay(*batch)
        for scheduler in schedulers:
            scheduler.step()
    assert replay._stepping.inside
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


def test_a_learning_rate_given_as_a_number_is_followed():
    plain, ours = world(optimizer=tensor_adam(False)), world(optimizer=tensor_adam(False))
    ours.optimizer.param_groups[0]["lr"] = 0.01
    replay = excessmtl.Replay(ours.balancer, ours.compute, ours.optimizer)
    for number, batch in enumerate(batches(12, device="cuda")):
        plain.optimizer.param_groups[0]["lr"].fill_(0.01 / (1 + number))
        ours.optimizer.param_groups[0]["lr"] = 0.01 / (1 + number)
        plain.step(*batch)
        replay(*batch)
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


@pytest.mark.parametrize("schedule", ["none", "cycle"])
def test_settings_that_change_take_the_optimiser_out_of_the_recording(schedule):
    plain, ours = world(optimizer=tensor_adam(False)), world(optimizer=tensor_adam(False))
    replay = excessmtl.Replay(ours.balancer, ours.compute, ours.optimizer)
    cycles = []
    if schedule == "cycle":  # changes betas in every step
        cycles = [torch.optim.lr_scheduler.OneCycleLR(one.optimizer, 0.01, total_steps=30) for one in (plain, ours)]
    for number, batch in enumerate(batches(16, device="cuda")):
        if number == 6 and not cycles:
            for one in (plain, ours):
                one.optimizer.param_groups[0]["weight_decay"] = 0.1
        plain.step(*batch)
        replay(*batch)
        for cycle in cycles:
            cycle.step()
    assert not replay._stepping.inside
    assert replay.reason is None
    assert ours.calls < 16
    assert_same(plain, ours)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_other_optimisers_step_after_the_recording(name):
    def make(parameters):
        return getattr(torch.optim, name)(parameters, lr=0.01)

    plain, ours = world(optimizer=make), world(optimizer=make)
    replay = excessmtl.Replay(ours.balancer, ours.compute, ours.optimizer)
    for batch in batches(10, device="cuda"):
        plain.step(*batch)
        replay(*batch)
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


@pytest.mark.parametrize("name", ["Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"])
def test_every_capturable_optimiser_steps_inside_or_after(name):
    def make(parameters):
        return getattr(torch.optim, name)(parameters, lr=torch.tensor(0.01, device="cuda"), capturable=True)

    plain, ours = world(optimizer=make), world(optimizer=make)
    replay = excessmtl.Replay(ours.balancer, ours.compute, ours.optimizer)
    for batch in batches(14, device="cuda"):
        plain.step(*batch)
        replay(*batch)
    assert replay.reason is None
    print(name, "inside" if replay._stepping.inside else "after")
    assert_same(plain, ours)


def test_states_of_model_balancer_and_optimiser_can_be_loaded_between_steps():
    ours = world(optimizer=tensor_adam(True))
    replay = excessmtl.Replay(ours.balancer, ours.compute, ours.optimizer)
    given = batches(20, device="cuda")
    parts = (ours.model, ours.balancer, ours.optimizer)
    for batch in given[:8]:
        replay(*batch)
    saved = copy.deepcopy([part.state_dict() for part in parts])
    first = [replay(*batch) for batch in given[8:]]
    reached = copy.deepcopy(ours.model.state_dict())
    for part, state in zip(parts, saved, strict=True):
        part.load_state_dict(state)
    second = [replay(*batch) for batch in given[8:]]
    torch.testing.assert_close(ours.model.state_dict(), reached, rtol=0, atol=0)
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one.weights, two.weights)
        assert torch.equal(one.losses, two.losses)


def test_steps_can_be_taken_by_hand_in_between_and_epochs_end():
    plain, ours, replay = pair("dwa")
    for number, batch in enumerate(batches(16, device="cuda")):
        plain.step(*batch)
        ours.step(*batch) if number % 5 == 4 else ours.take(replay, *batch)
        if number % 4 == 3:
            plain.balancer.end_epoch()
            ours.balancer.end_epoch()
    assert_same(plain, ours)


def test_gradients_belong_to_the_caller():
    ours = world("uniform")
    replay = ours.replay()
    given = batches(8, device="cuda")
    for batch in given:
        replay(*batch)
        for parameter in ours.model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(100)
            parameter.grad = None
    replay(*given[0])
    found = {name: p.grad.clone() for name, p in ours.model.named_parameters()}
    fresh = world("uniform")
    fresh.step(*given[0])
    for name, parameter in fresh.model.named_parameters():
        assert torch.equal(parameter.grad, found[name])


def test_dropout_draws_anew_in_every_replay():
    ours = world("uniform", trunk=lambda: nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Dropout(0.5)))
    replay = ours.replay()
    (batch,) = batches(1, device="cuda")
    losses = torch.stack([replay(*batch).losses for _ in range(10)])
    assert ours.calls == WARM_UP + 1
    assert len({tuple(row) for row in losses.tolist()}) == 10


def reads_the_device(one):
    def compute(x, targets):
        losses = one.compute(x, targets)
        assert losses["a"].item() >= 0
        return losses

    return excessmtl.Replay(one.balancer, compute)


def test_a_step_that_reads_the_device_runs_as_it_is():
    plain, ours = world(), world()
    replay = reads_the_device(ours)
    given = batches(10, device="cuda")
    for batch in given:
        plain.step(*batch)
    for batch in given[:WARM_UP]:
        ours.take(replay, *batch)
    with pytest.warns(UserWarning, match="steps are not replayed: recording one failed"):
        ours.take(replay, *given[WARM_UP])
    for batch in given[WARM_UP + 1 :]:
        ours.take(replay, *batch)
    assert "recording one failed" in replay.reason
    assert_same(plain, ours)


@pytest.mark.filterwarnings("ignore:steps are not replayed")
def test_others_are_recorded_after_a_recording_has_failed():
    failing = reads_the_device(world())
    plain, ours, replay = pair()
    for batch in batches(10, device="cuda"):
        plain.step(*batch)
        failing(*batch)
        ours.take(replay, *batch)
    assert failing.reason is not None
    assert torch.randn(3, device="cuda").isfinite().all()
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


def test_frozen_and_replaced_parameters():
    plain, ours, replay = pair()
    for number, batch in enumerate(batches(18, device="cuda")):
        for one in (plain, ours):
            weight = one.model.heads["a"].weight
            if number in (6, 12):
                weight.requires_grad_(number == 12)
            if number == 15:
                weight.data = weight.data.clone()
        plain.step(*batch)
        ours.take(replay, *batch)
    assert_same(plain, ours)


def test_autocast_around_the_call():
    plain, ours, replay = pair()
    for batch in batches(10, device="cuda"):
        for take in (plain.step, lambda *batch: ours.take(replay, *batch)):
            with torch.autocast("cuda", torch.bfloat16):
                take(*batch)
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


def test_estimates_every_other_step():
    plain, ours, replay = pair(every=2)
    for batch in batches(14, device="cuda"):
        plain.step(*batch)
        ours.take(replay, *batch)
    assert ours.calls == 2 * (WARM_UP + 1)
    assert_same(plain, ours)


def test_a_bad_task_is_left_out_of_a_replayed_step():
    plain, ours, replay = pair()
    for number, (x, targets) in enumerate(batches(10, device="cuda")):
        if number == 7:
            targets["b"] = targets["b"] * torch.nan
        plain.step(x, targets)
        ours.take(replay, x, targets)
    assert ours.steps[7].skipped == ("b",)
    assert not ours.steps[8].skipped
    assert_same(plain, ours)
