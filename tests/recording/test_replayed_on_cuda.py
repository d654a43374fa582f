"""What a CUDA device alone can show of replayed steps: they are the steps themselves, bit for bit."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from excessmtl.recording.recording import WARM_UP
from models import FEATURES, WIDTH
from recorded_world import World, assert_same, batches

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device"),
    # The plain steps that replayed ones are compared with use the same optimiser without a recording.
    pytest.mark.filterwarnings("ignore:.*capturable=True"),
]
METHODS = {
    "excess": {},
    "paper": {"estimator": "paper"},
    "paper-z": {"estimator": "paper", "probe": "representation"},
    **{name: {} for name in ("uniform", "imtl", "gradnorm", "mgda", "groupdro", "cagrad", "nash", "uw", "dtp")},
}


@pytest.fixture(autouse=True)
def _exact():
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        yield
    gc.collect()


def world(method="excess", kind=World, **options):
    return kind(method.partition("-")[0].replace("paper", "excess"), "cuda", **METHODS.get(method, {}), **options)


def replayed(plain, ours, given, replay=None, after=lambda number: None):
    """The same steps in both; by the replay in the second, which runs the model's Python until it has recorded."""
    replay = replay or ours.replay()
    for number, batch in enumerate(given):
        plain.step(*batch)
        replay(*batch) if replay._optimizer else ours.take(replay, *batch)
        after(number)
    assert replay.reason is None
    assert_same(plain, ours)
    return replay


def with_optimizer(make):
    plain, ours = world(optimizer=make), world(optimizer=make)
    return plain, ours, excessmtl.Replay(ours.balancer, ours.compute, ours.optimizer)


def capturable(name="Adam", **options):
    def make(parameters):
        rate = torch.tensor(0.01, device="cuda")
        return getattr(torch.optim, name)(parameters, lr=rate, capturable=True, **options)

    return make


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_the_same_steps(method):
    plain, ours = world(method), world(method)
    replayed(plain, ours, batches(12, device="cuda"))
    assert ours.calls == WARM_UP + 1


class OnMaps(World):
    """Heads that look at every position of a map."""

    def losses(self, z, targets):
        heads = self.model.heads
        return {task: mse_loss(heads[task](z.flatten(2)).mean(1), y) for task, y in targets.items()}


def convolutions():
    layers = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, WIDTH))


def maps():
    return nn.Sequential(nn.Linear(FEATURES, 4 * WIDTH), nn.Unflatten(1, (4, 4, WIDTH // 4)), nn.Conv2d(4, 4, 1))


@pytest.mark.parametrize(
    ("method", "kind", "trunk"), [("excess", World, convolutions), ("excess", OnMaps, maps), ("uniform", OnMaps, maps)]
)
def test_convolutions_batch_statistics_and_maps(method, kind, trunk):
    plain, ours = (world(method, kind, trunk=trunk) for _ in range(2))
    replayed(plain, ours, batches(10, device="cuda"))
    assert ours.calls == WARM_UP + 1


def test_batches_from_pinned_and_plain_host_memory():
    plain, ours = world(), world()
    replay = ours.replay()
    for number, (x, targets) in enumerate(batches(12)):
        if number % 2:
            x, targets = x.pin_memory(), {task: target.pin_memory() for task, target in targets.items()}
        plain.step(x.cuda(), {task: target.cuda() for task, target in targets.items()})
        ours.take(replay, x, targets)
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)


# ------------------------------------------------------------------ optimisers


@pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
def test_a_capturable_optimiser_with_a_scheduler_is_part_of_the_recording(fused):
    plain, ours, replay = with_optimizer(capturable(fused=fused))
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(one.optimizer, 0.9) for one in (plain, ours)]
    replayed(plain, ours, batches(14, device="cuda"), replay, lambda number: [one.step() for one in schedulers])
    assert replay._optimizer.recordable
    assert ours.calls == WARM_UP + 1


def test_a_learning_rate_given_as_a_number_is_followed():
    plain, ours, replay = with_optimizer(capturable())
    ours.optimizer.param_groups[0]["lr"] = 0.01

    def decay(number):
        plain.optimizer.param_groups[0]["lr"].fill_(0.01 / (2 + number))
        ours.optimizer.param_groups[0]["lr"] = 0.01 / (2 + number)

    replayed(plain, ours, batches(12, device="cuda"), replay, decay)
    assert ours.calls == WARM_UP + 1


@pytest.mark.parametrize("schedule", ["none", "cycle"])
def test_settings_that_change_take_the_optimiser_out_of_the_recording(schedule):
    plain, ours, replay = with_optimizer(capturable())
    optimizers, cycles = (plain.optimizer, ours.optimizer), []
    if schedule == "cycle":  # changes betas in every step
        cycles = [torch.optim.lr_scheduler.OneCycleLR(one, 0.01, total_steps=30) for one in optimizers]

    def change(number):
        for cycle in cycles:
            cycle.step()
        for optimizer in optimizers if number == 5 and not cycles else ():
            optimizer.param_groups[0]["weight_decay"] = 0.1

    replayed(plain, ours, batches(16, device="cuda"), replay, change)
    assert not replay._optimizer.recordable
    assert ours.calls < 16


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_other_optimisers_step_after_the_recording(name):
    plain, ours, replay = with_optimizer(lambda parameters: getattr(torch.optim, name)(parameters, lr=0.01))
    replayed(plain, ours, batches(10, device="cuda"), replay)
    assert ours.calls == WARM_UP + 1


@pytest.mark.parametrize("name", ["Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"])
def test_every_capturable_optimiser_takes_the_same_steps(name):
    plain, ours, replay = with_optimizer(capturable(name))
    replayed(plain, ours, batches(14, device="cuda"), replay)
    assert ours.calls < 14


def test_states_of_model_balancer_and_optimiser_can_be_loaded_between_steps():
    _, ours, replay = with_optimizer(capturable(fused=True))
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
        torch.testing.assert_close(two.numbers, one.numbers, rtol=0, atol=0, equal_nan=True)


# ------------------------------------------------------------------ what a recording repeats, and what not


def test_gradients_belong_to_the_caller():
    ours = world("uniform")
    replay = ours.replay()
    given = batches(8, device="cuda")
    for batch in given:
        replay(*batch)
        for parameter in ours.model.parameters():
            parameter.grad.mul_(100)
            parameter.grad = None
    replay(*given[0])
    fresh = world("uniform")
    fresh.step(*given[0])
    for found, wanted in zip(ours.model.parameters(), fresh.model.parameters(), strict=True):
        assert torch.equal(found.grad, wanted.grad)


def test_dropout_draws_anew_in_every_replay():
    ours = world("uniform", trunk=lambda: nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Dropout(0.5)))
    replay = ours.replay()
    (batch,) = batches(1, device="cuda")
    losses = torch.stack([replay(*batch).losses for _ in range(10)])
    assert ours.calls == WARM_UP + 1
    assert len({tuple(row) for row in losses.tolist()}) == 10


def test_a_step_that_reads_the_device_runs_as_it_is_and_others_are_recorded_after_it():
    plain, failing = world(), world()

    def compute(x, targets):
        losses = failing.compute(x, targets)
        assert losses["a"].item() >= 0
        return losses

    replay = excessmtl.Replay(failing.balancer, compute)
    for number, batch in enumerate(batches(10, device="cuda")):
        plain.step(*batch)
        if number == WARM_UP:
            with pytest.warns(UserWarning, match="steps are not replayed: recording one failed"):
                failing.take(replay, *batch)
        else:
            failing.take(replay, *batch)
    assert "recording one failed" in replay.reason
    assert_same(plain, failing)
    assert torch.randn(3, device="cuda").isfinite().all()
    plain, ours = world(), world()
    replayed(plain, ours, batches(10, device="cuda"))
    assert ours.calls == WARM_UP + 1


def test_autocast_around_the_call():
    plain, ours = world(), world()
    replay = ours.replay()
    for batch in batches(10, device="cuda"):
        for take in (plain.step, lambda *batch: ours.take(replay, *batch)):
            with torch.autocast("cuda", torch.bfloat16):
                take(*batch)
    assert ours.calls == WARM_UP + 1
    assert_same(plain, ours)
