"""Whether a recording may take an optimiser's steps, and what ends that."""

import pytest
import torch
from torch import nn

from excessmtl.recording.optimizer import RecordedOptimizer

CPU = torch.device("cpu")


def adam():
    return torch.optim.Adam([nn.Parameter(torch.ones(2))], lr=0.1, capturable=True)


def test_only_capturable_optimisers_are_recorded():
    assert RecordedOptimizer(adam()).recordable
    assert not RecordedOptimizer(torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)).recordable
    hooked = adam()
    hooked.register_step_post_hook(lambda *arguments: None)
    assert not RecordedOptimizer(hooked).recordable


def test_learning_rates_stay_in_their_place_whoever_changes_them():
    optimizer = adam()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    recorded, group = RecordedOptimizer(optimizer), optimizer.param_groups[0]
    recorded.place_learning_rates(CPU)
    place = group["lr"]
    assert place.item() == pytest.approx(0.1)
    optimizer._opt_called = True  # or the scheduler wonders why nothing was stepped
    scheduler.step()
    assert group["lr"] is place
    assert place.item() == pytest.approx(0.05)
    for value in (0.3, torch.tensor([0.4]), torch.tensor(0.5)):
        group["lr"] = value
        recorded.place_learning_rates(CPU)
        assert group["lr"] is place
        assert place.item() == pytest.approx(float(value))


def test_learning_rates_follow_to_another_device():
    optimizer = adam()
    recorded = RecordedOptimizer(optimizer)
    recorded.place_learning_rates(torch.device("meta"))
    optimizer.param_groups[0]["lr"] = 0.2
    recorded.place_learning_rates(CPU)
    assert optimizer.param_groups[0]["lr"].item() == pytest.approx(0.2)


def test_a_loaded_state_and_other_settings_end_the_recordings():
    optimizer = adam()
    recorded = RecordedOptimizer(optimizer)
    recorded.place_learning_rates(CPU)
    recorded.remember()
    assert recorded.unchanged()
    optimizer.load_state_dict(optimizer.state_dict())
    assert not recorded.unchanged()
    assert recorded.recordable
    recorded.remember()
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)  # notes the first rate in the groups
    assert recorded.unchanged()
    optimizer.param_groups[0]["weight_decay"] = 0.5
    assert not recorded.unchanged()
    assert not recorded.recordable
    assert recorded.unchanged()


def test_an_emptied_state_ends_the_recordings():
    parameter = nn.Parameter(torch.ones(2))
    sgd = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    parameter.grad = torch.ones(2)
    sgd.step()
    recorded = RecordedOptimizer(sgd)
    recorded.remember()
    assert recorded.unchanged()
    sgd.state.clear()
    sgd.step()  # there is a state again, not the one that was recorded
    assert not recorded.unchanged()
