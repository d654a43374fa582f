"""A user may have set another default type of torch: statistics are fp32 all the same."""

import pytest
import torch

from models import DEVICE, EVERY_METHOD, MultiTask, assert_same, each, trained


@pytest.fixture(params=[torch.float64, torch.bfloat16], ids=str)
def default_dtype(request):
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


@each("method", EVERY_METHOD)
def test_every_method_trains_and_its_state_is_fp32(method, default_dtype):
    torch.manual_seed(1)
    model = MultiTask().to(DEVICE)
    balancer = method.create(model.trunk)
    (*_, step) = trained(balancer, model, 4)
    assert step.skipped == ()
    assert step.weights.isfinite().all()
    floats = [buffer for buffer in balancer.buffers() if buffer.is_floating_point()]
    assert {buffer.dtype for buffer in floats} == {torch.float32}
    assert torch.get_default_dtype() is default_dtype


def test_a_state_is_loaded_whatever_the_default_type(default_dtype):
    method = EVERY_METHOD[0]
    model = MultiTask().to(DEVICE)
    first = method.create(model.trunk)
    trained(first, model, 2)
    torch.set_default_dtype(torch.float32)
    second = method.create(model.trunk)
    second.load_state_dict(first.state_dict())
    assert_same(first.state_dict(), second.state_dict())
