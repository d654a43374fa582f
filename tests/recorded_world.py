"""Recorded arithmetic without a CUDA device: a recording that does its work again when it is replayed."""

import pytest
import torch

from excessmtl.recording import arithmetic
from models import DEVICE


class Again:
    """Stands in for a `Recording`: making it leaves no trace, replaying it does the work on whatever is in place."""

    made = 0

    def __init__(self, work, balancer, stream):
        Again.made += 1
        self.work, self.balancer = work, balancer
        self.places = dict(balancer.named_buffers())
        values = {name: place.clone() for name, place in self.places.items()}
        counters = balancer.get_extra_state()
        try:
            self.result = work()
        finally:
            balancer.use(self.places)
            balancer.set_extra_state(counters)
            for name, place in self.places.items():
                place.copy_(values[name])

    def replay(self):
        self.balancer.settle(self.places)
        self.result = self.work()
        self.balancer.settle(self.places)


class Stream:
    def __init__(self, device):
        self.device = device


@pytest.fixture
def recording(monkeypatch):
    """On a CUDA device the real thing."""
    Again.made = 0
    if DEVICE.type != "cuda":
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(arithmetic, "Recording", Again)
        monkeypatch.setattr(arithmetic, "_can_record", lambda device: True)


def recorded(balancer):
    """How many kinds of batches have a recording."""
    return sum(kind.recorded is not None for kind in balancer._arithmetic._kinds._latest_last)
