"""Products over the positions of maps are z' dz."""

import pytest
import torch

from excessmtl.excess import excess_risk as module
from excessmtl.excess.excess_risk import in_parts, outer_products
from models import DEVICE


def draw(samples, positions, features, channels_last, dtype=torch.float32):
    """[samples, positions, features], as views of maps are."""
    if channels_last:
        return torch.randn(samples, positions, features, device=DEVICE).to(dtype)
    return torch.randn(samples, features, positions, device=DEVICE).to(dtype).mT


def exactly(z, dz):
    return (z.double().mT @ dz.double()).float()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("positions", [3, 16, 19, 64])
def test_in_parts(positions, channels_last, monkeypatch):
    monkeypatch.setattr(module, "_PART", 8)
    z, dz = (draw(2, positions, 5, channels_last) for _ in range(2))
    torch.testing.assert_close(in_parts(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-5)


def test_many_samples_and_other_types():
    z, dz = (draw(700, 100, 8, False, torch.bfloat16) for _ in range(2))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-4)
    z, dz = (draw(70_000, 7, 3, False) for _ in range(2))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-5)
    z, dz = (draw(0, 7, 3, False) for _ in range(2))
    assert outer_products(z, dz).shape == (0, 3, 3)
    z, dz = (draw(2, 40_000, 100, True) for _ in range(2))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-4, atol=1e-3)
