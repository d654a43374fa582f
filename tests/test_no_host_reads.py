"""With the representation known, `backward` never waits for the device."""

from contextlib import nullcontext

import pytest
import torch
from torch.nn.functional import mse_loss
from torch.utils._python_dispatch import TorchDispatchMode

import excessmtl
from choices import EVERY_METHOD, METHODS, PAPER, ROBUST, UNIFORM, Method, trunk_of
from models import BATCH, DEVICE, FEATURES, TASKS, OneHead, batch, heads_on
from steps import started

EXACT = [
    Method("excess", {"estimator": "paper", **options})
    for options in ({"tasks_at_once": 2}, {"accumulators": "bf16"}, {"tasks_at_once": 3, "accumulators": "bf16"})
]

READS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.item.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.unique_consecutive.default,
    torch.ops.aten._unique2.default,
}


class NoHostReads(TorchDispatchMode):
    """Raises on every operator whose result depends on values the host would have to wait for."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in READS:
            raise AssertionError(f"{function} waits for the device")
        if function in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
            indices = args[1]
            if any(index is not None and index.dtype == torch.bool for index in indices):
                raise AssertionError(f"{function} with a bool index waits for the device")
        return function(*args, **(kwargs or {}))


class NoHostWrites(TorchDispatchMode):
    """Raises where a tensor is made from numbers of the host: its copy to a device is one no CUDA graph can record."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.lift_fresh.default:
            raise AssertionError("a tensor is made from numbers of the host")
        return function(*args, **(kwargs or {}))


def step(balancer, model, form="backward", at=False, **arguments):
    x, targets = batch()
    z = model.trunk(x)
    losses = heads_on(model, z, targets)
    if at:
        arguments["at"] = z
    with pytest.MonkeyPatch.context() as patch:
        for name in ("tolist", "numpy", "cpu", "item", "__bool__", "__float__", "__int__", "__array__"):
            patch.setattr(torch.Tensor, name, _refuse(name))
        with NoHostReads():
            return getattr(balancer, form)(losses, **arguments)


def _refuse(name):
    original = getattr(torch.Tensor, name)

    def read(tensor, *args, **kwargs):
        if tensor.device.type == DEVICE.type:  # tensors of the host may be read beside a GPU
            raise AssertionError(f"Tensor.{name} waits for the device")
        return original(tensor, *args, **kwargs)

    return read


def test_the_guards_guard():
    with NoHostReads(), pytest.raises(AssertionError):
        bool(torch.ones(()))
    with NoHostWrites(), pytest.raises(AssertionError):
        torch.tensor([1.0, 2.0])
    with NoHostReads(), pytest.raises(AssertionError):
        torch.ones(3)[torch.ones(3, dtype=torch.bool)]


@pytest.mark.parametrize("method", EVERY_METHOD + EXACT, ids=str)
def test_backward_reads_nothing_and_brings_nothing_unless_the_method_says_so(method):
    model, balancer = started(method)
    step(balancer, model)
    with nullcontext() if balancer.rule.uses_host else NoHostWrites():
        step(balancer, model, at=True)
    step(balancer, model)
    assert trunk_of(balancer).vmap_works  # or a read was taken for a pass that does not work for several tasks


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_backward_reads_nothing_with_masks_and_accumulation(method):
    model, balancer = started(method)
    mask = {"a": torch.tensor([True, False] * 4)}
    step(balancer, model, at=True, mask=mask, accumulate=True)
    step(balancer, model, at=True, mask=mask)


@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_a_matrix_of_losses_reads_nothing(method):
    """Neither which entries carry a label, nor whether a task has one at all."""
    model = OneHead()
    balancer = method.create(model.trunk)
    targets = torch.randn(BATCH, len(TASKS), device=DEVICE)
    targets[:, 0], targets[:3, 1] = torch.nan, torch.nan
    for _ in range(2):
        outputs = model(torch.randn(BATCH, FEATURES, device=DEVICE))
        with NoHostReads():
            balancer.backward(mse_loss(outputs, targets, reduction="none"))
            outputs = model(torch.randn(BATCH, FEATURES, device=DEVICE))
            losses, mask = excessmtl.losses.by_task(outputs, targets, TASKS)
            balancer.backward(losses, mask=mask)


def test_the_scalar_form_reads_nothing():
    model, balancer = started(UNIFORM)
    step(balancer, model, form="forward", at=True)
