"""Robust losses from a recording are those computed eagerly, and they learn the same.

Without a CUDA device a stand-in does the work again; EXCESSMTL_TEST_DEVICE=cuda records it.
"""

import copy

import pytest
import torch
from test_together import KINDS, TASKS, batch, losses

import excessmtl
import steps
from excessmtl import recorded_losses
from excessmtl.losses import RobustCrossEntropy
from excessmtl.losses.missing_labels import losses_and_masks
from excessmtl.losses.together import stacked_losses
from excessmtl.recorded_losses import RecordedLosses
from excessmtl.recording.recording import WARM_UP
from models import DEVICE
from recorded_world import StandIn, without_a_device


class StandInLosses(StandIn):
    def kept(self, first, fresh):
        for target, source in zip(first[:3], fresh[:3], strict=True):
            target.copy_(source)
        return first._replace(lesson=fresh.lesson)


@pytest.fixture(autouse=True)
def recording(monkeypatch):
    if DEVICE.type != "cuda":
        without_a_device(monkeypatch)
        monkeypatch.setattr(recorded_losses, "Recording", StandInLosses)


class Both:
    """The same losses twice, computed eagerly and from recordings; `kept` has what came out of all batches."""

    def __init__(self):
        self.computes = stacked_losses, RecordedLosses()
        self.losses = losses(), losses()
        self.kept = [], []

    def take(self, seeds, size=None):
        for seed in seeds:
            for compute, own, kept in zip(self.computes, self.losses, self.kept, strict=True):
                outputs, targets = ({task: part[:size] for task, part in parts.items()} for parts in batch(seed))
                found, masks = losses_and_masks(outputs, targets, TASKS, own, -100, compute)
                gradients = [torch.autograd.grad(found[task], outputs[task], retain_graph=True)[0] for task in TASKS]
                kept.append((found, masks, gradients))

    def assert_same(self):
        """What came out earlier, too: the memory of a recording is not handed out."""
        steps.assert_same(self.kept[1], self.kept[0])
        for task, loss in self.losses[0].items():
            steps.assert_same(self.losses[1][task].state_dict(), loss.state_dict())

    @property
    def recordings(self):
        entries = [entry for _, cache in self.computes[1].caches.values() for entry in cache.entries]
        return [entry.recorded for entry in entries if entry.recorded is not None]


def test_the_same_losses_bit_for_bit_in_batches_of_two_sizes():
    both = Both()
    for seed in range(0, 20, 2):
        both.take([seed])
        both.take([seed + 1], size=16)
    assert len(both.recordings) == 9  # of each kind two large batches and a small one; of 16 all are alike
    both.assert_same()


@pytest.mark.parametrize(
    ("change", "kept", "made"), [("state", 6, 0), ("place", 0, 6), ("options", 6, 2), ("settings", 6, 6)]
)
def test_what_changes_between_batches_is_seen(change, kept, made, monkeypatch):
    """The stand-in does the work again; a CUDA graph would go on with what was there when it was made."""
    both = Both()
    both.take(range(WARM_UP + 4))
    before = both.recordings
    if change == "settings":
        monkeypatch.setattr(recorded_losses, "kernel_settings", lambda: "others")
    for own in both.losses:
        for task in TASKS:
            if change == "state":
                own[task].load_state_dict(losses()[task].state_dict())
            elif change == "place":
                own[task]._apply(torch.clone)
            elif change == "options" and task.startswith("regression"):
                own[task].strength = 0.0
    both.take(range(20, 24 + WARM_UP))
    assert len([one for one in both.recordings if one in before]) == kept
    assert len(both.recordings) == kept + made
    both.assert_same()


def test_losses_that_are_computed_one_by_one_are_recorded_one_by_one():
    made = {task: RobustCrossEntropy(torch.ones(3), reduction="none").to(DEVICE) for task in "abcdef"}
    compute, parts = RecordedLosses(), batch(0)
    outputs, targets = (dict.fromkeys(made, part["classification 0"]) for part in parts)
    for _ in range(WARM_UP + 4):
        losses_and_masks(outputs, targets, list(made), made, -100, compute)
    assert sum(entry.recorded is not None for _, cache in compute.caches.values() for entry in cache.entries) == 6


@pytest.mark.parametrize("why", ["one loss for two tasks", "two processes"])
def test_where_learning_cannot_be_replayed_nothing_is_recorded(why, monkeypatch):
    both = Both()
    if why == "two processes":
        monkeypatch.setattr(recorded_losses, "processes", lambda: 2)
    else:
        for own in both.losses:
            own |= {task: own[f"{task.split()[0]} 0"] for task in TASKS}
    both.take(range(WARM_UP + 4))
    assert all(len(recorded.losses) == 1 for recorded in both.recordings)
    assert len(both.recordings) == (3 if why == "one loss for two tasks" else 0)  # those of the small batches
    both.assert_same()


def test_evaluation_learns_nothing_and_a_copy_records_anew():
    both = Both()
    both.take(range(WARM_UP + 4))
    before = {task: copy.deepcopy(loss.state_dict()) for task, loss in both.losses[1].items()}
    for loss in both.losses[1].values():
        loss.eval()
    losses_and_masks(*batch(50), TASKS, both.losses[1], -100, both.computes[1])
    for task, loss in both.losses[1].items():
        steps.assert_same(loss.state_dict(), before[task])
    assert copy.deepcopy(both.computes[1]).caches == {}
    assert len(both.recordings) == 6


def test_where_recording_fails_training_goes_on(monkeypatch):
    def fails(*args):
        raise RuntimeError("no graph today\nand more")

    both = Both()
    monkeypatch.setattr(recorded_losses, "Recording", fails)
    with pytest.warns(UserWarning, match="robust losses are not replayed: recording one failed .no graph today."):
        both.take(range(WARM_UP + 4))
    both.assert_same()


@pytest.mark.parametrize(("record", "largest", "recordings"), [(True, 192, 1), (False, 192, 0), (True, 191, 0)])
def test_a_criterion_records_unless_told_otherwise_or_large(monkeypatch, record, largest, recordings):
    monkeypatch.setattr(recorded_losses, "_LARGEST", largest)
    encoder = torch.nn.Linear(4, 8).to(DEVICE)
    head = torch.nn.Linear(8, 3).to(DEVICE)
    criterion = excessmtl.MultiTaskLoss(dict.fromkeys(KINDS, "regression"), encoder, record=record)
    for _ in range(WARM_UP + 4):
        criterion.backward(head(encoder(torch.randn(8, 4, device=DEVICE))), torch.randn(8, 3, device=DEVICE))
    caches = getattr(criterion._compute, "caches", {}).values()
    assert [entry.recorded is not None for _, cache in caches for entry in cache.entries] == [True] * recordings
    criterion.add_task("another", "regression")
    assert not getattr(criterion._compute, "caches", {})
