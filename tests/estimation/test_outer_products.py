"""Products over the positions of maps, by whichever way, are z' dz."""

import pytest
import torch

from excessmtl.estimation import outer_products as module
from excessmtl.estimation.outer_products import in_parts, outer_products
from excessmtl.fast.kernels import kernels_for
from models import DEVICE

on_cuda = pytest.mark.skipif(DEVICE.type != "cuda", reason="kernels need a CUDA device; set EXCESSMTL_TEST_DEVICE=cuda")


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


class NoKernels:
    """What calls them fails."""


@pytest.mark.parametrize(
    ("z", "dz"),
    [
        (torch.zeros(0, 9, 4), torch.zeros(0, 9, 4)),
        (torch.zeros(2, 9, 65), torch.zeros(2, 9, 65)),
        (torch.zeros(2, 9, 4), torch.zeros(2, 9, 4, dtype=torch.bfloat16)),
        (torch.zeros(2, 9, 4), torch.zeros(9, 3, 4).mT[:, :, :2].permute(2, 0, 1)),
    ],
    ids=["empty", "wide", "of_two_types", "far_apart"],
)
def test_what_does_not_fit_the_kernel(z, dz, monkeypatch):
    monkeypatch.setattr(module, "kernels_for", lambda tensor: NoKernels())
    monkeypatch.setattr(module, "_FARTHEST", 36)
    with pytest.raises(AttributeError):
        outer_products(torch.zeros(2, 9, 4), torch.zeros(2, 9, 4))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz))


@on_cuda
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("features", [3, 16, 33, 64])
@pytest.mark.parametrize("positions", [65, 4096, 70_001])
def test_by_the_kernel(positions, features, channels_last):
    z, dz = (draw(4, positions, features, channels_last) for _ in range(2))
    assert kernels_for(z) is not None
    # Rounding grows like the root of what is added up; TF32 would be off by a hundred times as much.
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-5, atol=2e-6 * positions**0.5)


@on_cuda
def test_many_samples_and_other_types():
    z, dz = (draw(700, 100, 8, False, torch.bfloat16) for _ in range(2))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-4)
    z, dz = (draw(70_000, 7, 3, False) for _ in range(2))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-5)
    z, dz = (draw(0, 7, 3, False) for _ in range(2))
    assert outer_products(z, dz).shape == (0, 3, 3)
    z, dz = (draw(2, 40_000, 100, True) for _ in range(2))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-4, atol=1e-3)


@on_cuda
def test_the_kernel_can_be_recorded():
    z, dz = (draw(2, 4096, 64, False) for _ in range(2))
    outer_products(z, dz)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = outer_products(z, dz)
    dz.normal_()
    graph.replay()
    torch.testing.assert_close(found, outer_products(z, dz), rtol=0, atol=0)
