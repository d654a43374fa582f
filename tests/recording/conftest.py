"""Recorded arithmetic with and without a CUDA device."""

import pytest

from excessmtl.recording import recorded as engine
from models import DEVICE
from recorded_world import StandInDecision, without_a_device


@pytest.fixture
def recording(monkeypatch):
    """On a CUDA device (EXCESSMTL_TEST_DEVICE=cuda) the real thing, else a stand-in that does the work again."""
    if DEVICE.type != "cuda":
        without_a_device(monkeypatch)
        monkeypatch.setattr(engine, "Recording", StandInDecision)
        monkeypatch.setattr(engine.Recorded, "recorded_on", {"cpu"})
