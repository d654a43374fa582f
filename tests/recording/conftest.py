"""Recorded arithmetic with and without a CUDA device."""

import pytest
import torch

from excessmtl.recording import arithmetic
from models import DEVICE
from recorded_world import Again, Stream


@pytest.fixture
def recording(monkeypatch):
    """On a CUDA device (EXCESSMTL_TEST_DEVICE=cuda) the real thing, else a stand-in that does the work again."""
    if DEVICE.type != "cuda":
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(arithmetic, "Recording", Again)
        monkeypatch.setattr(arithmetic, "_can_record", lambda device: True)
