"""Recorded arithmetic with and without a CUDA device."""

import pytest
import torch

from excessmtl.recording import recorded as engine
from models import DEVICE
from recorded_world import Again, Stream


@pytest.fixture
def recording(monkeypatch):
    """On a CUDA device (EXCESSMTL_TEST_DEVICE=cuda) the real thing, else a stand-in that does the work again."""
    if DEVICE.type != "cuda":
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(engine, "Recording", Again)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(engine, "records_on", lambda device: True)
