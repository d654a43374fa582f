"""Gradients that stay where autograd put them are what copies of them would be, and nobody's memory is overwritten.

`test_fast_paths.py` has whole steps with them. EXCESSMTL_TEST_DEVICE=cuda tries the kernels too.
"""

import importlib.util
from typing import ClassVar

import pytest
import torch
from torch import nn

import models
from engines import all_maps_are_large
from excessmtl.fast import kernels as kernels_module
from excessmtl.fast.batched import Stacked
from excessmtl.fast.kernels import kernels_for
from excessmtl.fast.large_maps import LargeMaps, is_large, weighted_sum
from models import DEVICE, PAPER_Z, ROBUST, UNIFORM

SHAPE = (3, 5, 4, 7)
LAYOUTS = [torch.contiguous_format, torch.channels_last]
each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=["contiguous", "channels_last"])
on_cuda = pytest.mark.skipif(DEVICE.type != "cuda", reason="kernels need a CUDA device; set EXCESSMTL_TEST_DEVICE=cuda")


@pytest.fixture
def all_are_large(monkeypatch):
    monkeypatch.setattr(models, "ENGINE", all_maps_are_large)


def draw(layout=torch.contiguous_format, shape=SHAPE, dtype=torch.float32):
    return torch.randn(shape, device=DEVICE).to(dtype).contiguous(memory_format=layout)


def filled(gradients, z):
    maps = LargeMaps.empty_like(z, len(gradients))
    for task, gradient in enumerate(gradients):
        if gradient is not None:
            maps.add(task, gradient)
    return maps


@each_layout
def test_they_are_what_copies_would_be(layout):
    gradients = [draw(layout) for _ in range(4)]
    gradients[1][0, 0, 0, 0], gradients[2][1] = torch.nan, torch.inf
    before = [gradient.clone() for gradient in gradients]
    maps, stacked = filled(gradients, draw(layout)), Stacked.of(gradients)
    assert torch.equal(maps.magnitudes().isfinite(), stacked.magnitudes().isfinite())
    ok = torch.tensor([True, False, False, True], device=DEVICE)
    maps.zero_unless(ok)
    stacked.zero_unless(ok)
    weights = torch.tensor([0.5, 2.0, 3.0, -1.0], device=DEVICE)
    torch.testing.assert_close(maps.combined(weights), stacked.combined(weights))
    assert maps.combined(weights).is_contiguous(memory_format=layout)
    torch.testing.assert_close(maps.over_positions(), stacked.tensors.sum((3, 4)))
    torch.testing.assert_close(stacked.over_positions(), stacked.tensors.sum((3, 4)))
    torch.testing.assert_close(maps.each(torch.Tensor.amax), stacked.tensors.amax((1, 2, 3, 4)))
    torch.testing.assert_close(stacked.each(torch.Tensor.amax), stacked.tensors.amax((1, 2, 3, 4)))
    matrix = torch.randn(SHAPE[-1], 2, device=DEVICE)
    torch.testing.assert_close(maps.times(matrix), stacked.times(matrix))
    torch.testing.assert_close(maps.tensors, stacked.tensors)
    torch.testing.assert_close(gradients, before, rtol=0, atol=0, equal_nan=True)


def test_what_fits_is_not_copied_and_what_does_not_is():
    z = draw()
    whole, other_layout = draw(), draw(torch.channels_last)
    part, repeated = torch.stack([draw(), draw()])[1], draw()[:1].expand(SHAPE)
    given = [whole, other_layout, part, repeated]
    maps = filled(given, z)
    assert maps.arrived[0] is whole
    for task in (1, 2, 3):
        torch.testing.assert_close(maps.arrived[task], given[task])
        assert maps.arrived[task].stride() == z.stride()
        assert maps.arrived[task].untyped_storage().nbytes() == z.untyped_storage().nbytes()


def test_what_arrives_in_parts_is_added_up_elsewhere():
    first, second = draw(), draw()
    kept = first.clone()
    maps = filled([first], first)
    maps.add(0, second)
    torch.testing.assert_close(maps.arrived[0], first + second)
    assert torch.equal(first, kept)


def test_tasks_at_which_nothing_arrived_are_zero():
    gradient, weights = draw(), torch.tensor([1.0, 2.0, 3.0], device=DEVICE)
    maps = filled([None, gradient, None], gradient)
    torch.testing.assert_close(maps.combined(weights), 2 * gradient)
    assert maps.magnitudes().count_nonzero() == maps.tensors.flatten(1).any(1).sum() == 1
    nothing = filled([None, None], gradient)
    assert nothing.combined(weights[:2]).shape == gradient.shape
    assert not any(found.any() for found in (nothing.combined(weights[:2]), nothing.magnitudes(), nothing.tensors))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_many_are_added_up_without_rounding_on_the_way(dtype):
    gradients, weights = [draw(dtype=dtype) for _ in range(130)], torch.rand(130, device=DEVICE)
    wanted = sum(weight.double() * gradient.double() for weight, gradient in zip(weights, gradients, strict=True))
    ok = torch.ones(130, dtype=torch.bool, device=DEVICE)
    found = weighted_sum(gradients, weights, ok)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_what_is_large():
    size = draw().numel()
    assert all(is_large(draw(layout), size) for layout in LAYOUTS)
    assert not is_large(draw()[:2], size)
    assert not is_large(draw().to(torch.complex64), size)
    assert not is_large(torch.stack([draw(), draw()], dim=-1)[..., 0], size)


def network():
    torch.manual_seed(1)
    heads = {task: nn.Conv2d(4, outputs, 3) for task, outputs in (("a", 2), ("b", 1), ("c", 3))}
    return nn.ModuleDict({"trunk": nn.Conv2d(3, 4, 3), "heads": nn.ModuleDict(heads)}).to(DEVICE)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.usefixtures("all_are_large")
def test_a_hook_that_overwrites_what_it_sees_at_z(held):
    """While the heads are walked it sees something that nothing depends on; or is asleep, where z is still at hand."""
    found = []
    for hooked in (False, True):
        model, calls = network(), []
        balancer = ROBUST.create(model["trunk"])

        def overwrite(gradient, calls=calls):
            calls.append(1)
            if not held and len(calls) == 1:
                gradient.zero_()

        z = model["trunk"](torch.ones(2, 3, 8, 9, device=DEVICE).cumsum(2))
        if hooked:
            z.register_hook(overwrite)
        # A convolution of z itself would hold it.
        losses = {task: head(2 * z).square().mean() for task, head in model["heads"].items()}
        if not held:
            del z
        balancer.backward(losses)
        assert len(calls) == (0 if not hooked else 1 if held else 2)
        found.append(model["trunk"].weight.grad)
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.usefixtures("all_are_large")
def test_gradients_are_neither_copied_nor_added_up(monkeypatch):
    taken = []
    add = LargeMaps.add
    monkeypatch.setattr(
        LargeMaps, "add", lambda maps, task, one: taken.append((maps, task, one)) or add(maps, task, one)
    )
    model = network()
    balancer = UNIFORM.create(model["trunk"])
    z = model["trunk"](torch.randn(2, 3, 8, 9, device=DEVICE))
    seen = []
    for head in model["heads"].values():
        head.register_full_backward_hook(lambda module, inputs, outputs: seen.append(inputs[0]))
    balancer.backward({task: head(z).square().mean() for task, head in model["heads"].items()})
    assert sorted(task for _, task, _ in taken) == [0, 1, 2]
    assert all(maps.arrived[task].data_ptr() == one.data_ptr() for maps, task, one in taken)
    assert len(seen) == 3


class _Reusing(torch.autograd.Function):
    """Leaves its gradient in the same place every time, as a recorded layer does."""

    places: ClassVar[dict] = {}

    @staticmethod
    def forward(ctx, z, task):
        ctx.task = task
        return 2 * z

    @staticmethod
    def backward(ctx, gradient):
        place = _Reusing.places.setdefault(ctx.task, torch.empty_like(gradient))
        return torch.mul(gradient, 2, out=place), None


@pytest.mark.usefixtures("all_are_large")
def test_gradients_that_wait_for_the_last_micro_batch_are_not_overwritten(monkeypatch):
    found = []
    for reused in (False, True):
        monkeypatch.setattr(_Reusing, "places", {})
        model = network()
        balancer = PAPER_Z.create(model["trunk"])
        for scale, last in ((1, False), (-3, True)):
            z = model["trunk"](scale * torch.ones(2, 3, 8, 9, device=DEVICE).cumsum(2))
            losses = {
                task: head(_Reusing.apply(z, task) if reused else 2 * z).square().mean()
                for task, head in model["heads"].items()
            }
            step = balancer.backward(losses, accumulate=not last)
        found.append((step.excess_risks, model["trunk"].weight.grad))
    torch.testing.assert_close(found[1], found[0])


def test_no_kernels_without_a_device():
    assert kernels_for(torch.zeros(2)) is None


def test_kernels_that_fail_are_done_without(monkeypatch):
    def fail(name):
        raise RuntimeError("no compiler\nand a long report")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.warns(UserWarning, match=r"without Triton.*RuntimeError: no compiler$"):
        assert kernels_module._kernels.__wrapped__(torch.device("cuda"), torch.float32) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert kernels_module._kernels.__wrapped__(torch.device("cuda"), torch.float32) is None


def plainly(monkeypatch, function, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(kernels_module, "_DTYPES", ())
        return function(*arguments)


@on_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("shape", [(2, 16, 32, 48), (3, 5, 7, 11)])
def test_weighted_sums_by_the_kernel(shape, count, dtype, monkeypatch):
    tensors = [draw(shape=shape, dtype=dtype) for _ in range(count)]
    ok = torch.arange(count, device=DEVICE) % 3 != 1
    for place in range(1, count, 3):
        tensors[place][0, 0], tensors[place][-1, -1] = torch.nan, torch.inf
    weights = torch.rand(count, device=DEVICE)
    assert kernels_for(tensors[0]) is not None
    found = weighted_sum(tensors, weights, ok)
    wanted = plainly(monkeypatch, weighted_sum, [one.double() for one in tensors], weights, ok)
    assert found.dtype == dtype
    tolerance = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


@on_cuda
@each_layout
def test_weighted_sums_can_be_recorded(layout):
    tensors = [draw(layout) for _ in range(3)]
    weights, ok = torch.rand(3, device=DEVICE), torch.ones(3, dtype=torch.bool, device=DEVICE)
    weighted_sum(tensors, weights, ok)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = weighted_sum(tensors, weights, ok)
    weights.uniform_()
    tensors[1].fill_(torch.nan)
    ok[1] = False
    graph.replay()
    torch.testing.assert_close(found, weighted_sum(tensors, weights, ok), rtol=0, atol=0)
