"""Recorded arithmetic with and without a CUDA device."""

from types import SimpleNamespace

import pytest
import torch

from excessmtl.recording import recorded as engine
from models import DEVICE
from recorded_world import StandInDecision


@pytest.fixture
def recording(monkeypatch):
    """On a CUDA device (EXCESSMTL_TEST_DEVICE=cuda) the real thing, else a stand-in that does the work again."""
    if DEVICE.type != "cuda":
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(device=device))
        monkeypatch.setattr(engine, "Recording", StandInDecision)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(engine, "records_on", lambda device: True)
        monkeypatch.setattr(engine.Recorded, "recorded_on", {"cpu"})
