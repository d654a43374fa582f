"""A user may have set another default type of torch: statistics are fp32 all the same."""

import pytest
import torch

from models import DEVICE, EVERY_METHOD, MultiTask, each, trained


@pytest.fixture
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_float64")
@each("method", EVERY_METHOD)
def test_every_method_trains_and_its_state_is_fp32(method):
    torch.manual_seed(1)
    model = MultiTask().to(DEVICE)
    balancer = method.create(model.trunk)
    (*_, step) = trained(balancer, model, 2)
    assert step.skipped == ()
    assert step.weights.isfinite().all()
    floats = [buffer for buffer in balancer.buffers() if buffer.is_floating_point()]
    assert {buffer.dtype for buffer in floats} == {torch.float32}
    assert torch.get_default_dtype() is torch.float64
