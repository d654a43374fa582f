"""Robust losses from a recording are those computed eagerly, and they learn the same.

Without a CUDA device a stand-in does the work again; EXCESSMTL_TEST_DEVICE=cuda records it.
"""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import excessmtl
import steps
from excessmtl import recorded_losses
from excessmtl.recording import recorded
from excessmtl.recording.recording import WARM_UP
from models import DEVICE

KINDS = {"a": "binary", "b": "binary", "c": "regression", "d": "classification", "e": "regression"}
OUTPUTS = {"a": 1, "b": 1, "c": 1, "d": 3, "e": 1}


class StandIn:
    """In place of a `Recording`: making it runs nothing; results stay in the memory of the first replay."""

    def __init__(self, work, stream, pool):
        self.work, self.result = work, None

    def replay(self):
        fresh = self.work()
        if self.result is not None:
            for target, source in zip(self.result[:3], fresh[:3], strict=True):
                target.copy_(source)
            fresh = self.result._replace(lesson=fresh.lesson)
        self.result = fresh


@pytest.fixture(autouse=True)
def recording(monkeypatch):
    if DEVICE.type != "cuda":
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(device=device))
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(recorded_losses, "Recording", StandIn)
        monkeypatch.setattr(recorded, "records_on", lambda device: True)


class Training:
    """A model with its criterion."""

    def __init__(self, **options):
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.heads = nn.ModuleDict({task: nn.Linear(16, size) for task, size in OUTPUTS.items()})
        self.model = nn.ModuleList([self.trunk, self.heads]).to(DEVICE)
        self.criterion = excessmtl.MultiTaskLoss(KINDS, shared=self.trunk, **options)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.gradients = []

    def step(self, seed, size=32, holes=True, accumulate=False):
        random = torch.Generator().manual_seed(seed)
        x, *targets = (torch.randn(size, width, generator=random) for width in (4, 1, 1, 1, 1, 1))
        labels = {task: target.squeeze(1) + x[:, 0] for task, target in zip(KINDS, targets, strict=True)}
        labels = {task: (label > 0).float() if task in "ab" else label for task, label in labels.items()}
        labels["d"] = labels["d"].clamp(-0.9, 1.9).round().long().clamp(min=0)
        if holes:
            labels["a"][:5], labels["c"][3:9], labels["d"][::7] = torch.nan, torch.nan, -100
        z = self.trunk(x.to(DEVICE))
        outputs = {task: head(z) if task == "d" else head(z).squeeze(1) for task, head in self.heads.items()}
        labels = {task: label.to(DEVICE) for task, label in labels.items()}
        taken = self.criterion.backward(outputs, labels, accumulate=accumulate)
        if not accumulate:
            self.gradients.append((taken.numbers.clone(), steps.gradients(self.model)))
            self.optimizer.step()
            self.optimizer.zero_grad()

    def recorded(self):
        caches = getattr(self.criterion._compute, "caches", {}).values()
        return sum(entry.recorded is not None for cache in caches for entry in cache.entries)


def both():
    eager, ours = Training(), Training()
    eager.criterion._compute = recorded_losses.stacked_losses
    return eager, ours


def assert_same(eager, ours):
    steps.assert_same(ours.gradients, eager.gradients)
    steps.assert_same(ours.model.state_dict(), eager.model.state_dict())
    for task, loss in eager.criterion.losses.items():
        steps.assert_same(ours.criterion.losses[task].state_dict(), loss.state_dict())


def take(seeds, *trainings, **batch):
    for seed in seeds:
        for training in trainings:
            training.step(seed, **batch)


def test_the_same_steps_bit_for_bit():
    eager, ours = both()
    take(range(WARM_UP + 12), eager, ours)
    assert ours.recorded() == 3  # a recording for each kind
    assert_same(eager, ours)


def test_batches_of_two_sizes_and_micro_batches():
    eager, ours = both()
    for seed in range(3 * WARM_UP):
        take([seed], eager, ours, size=32, accumulate=True)  # what waits is not overwritten by the next one
        take([100 + seed], eager, ours, size=32)
        take([200 + seed], eager, ours, size=20, holes=False)
    assert ours.recorded() == 6
    assert_same(eager, ours)


def test_state_that_is_loaded_or_moved_is_the_one_that_learns():
    eager, ours = both()
    take(range(WARM_UP + 4), eager, ours)
    saved = [copy.deepcopy(training.criterion.state_dict()) for training in (eager, ours)]
    take(range(50, 54), eager, ours)
    for training, state in zip((eager, ours), saved, strict=True):
        training.criterion.load_state_dict(state)
        for loss in training.criterion.losses.values():  # buffers somewhere else
            loss._apply(torch.clone)
    take(range(60, 60 + 2 * WARM_UP), eager, ours)
    assert_same(eager, ours)


def test_options_that_change_are_seen():
    eager, ours = both()
    take(range(WARM_UP + 4), eager, ours)
    for training in (eager, ours):
        training.criterion.losses["c"].strength = training.criterion.losses["e"].strength = 0.0
    take(range(30, 34), eager, ours)
    assert_same(eager, ours)


def test_evaluation_learns_nothing():
    _, ours = both()
    take(range(WARM_UP + 4), ours)
    before = copy.deepcopy(ours.criterion.losses["c"].state_dict())
    ours.criterion.eval()
    outputs = {"c": torch.randn(8, device=DEVICE)}
    ours.criterion(outputs, {"c": torch.randn(8, device=DEVICE)})
    steps.assert_same(ours.criterion.losses["c"].state_dict(), before)


def test_a_copy_records_anew():
    _, ours = both()
    take(range(WARM_UP + 4), ours)
    copied = copy.deepcopy(ours.criterion)
    assert copied._compute.caches == {}
    assert ours.recorded() == 3


def test_nothing_is_recorded_with_record_off():
    plain = Training(record=False)
    take(range(WARM_UP + 4), plain)
    assert plain.recorded() == 0


def test_where_recording_fails_training_goes_on(monkeypatch):
    def fails(*args):
        raise RuntimeError("no graph today\nand more")

    eager, ours = both()
    monkeypatch.setattr(recorded_losses, "Recording", fails)
    with pytest.warns(UserWarning, match="robust losses are not replayed: recording one failed .no graph today."):
        take(range(WARM_UP + 4), eager, ours)
    assert_same(eager, ours)
