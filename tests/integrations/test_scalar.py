"""A scalar whose backward is the balancer's step."""

import copy

import pytest
import torch
from integration_worlds import TASKS, Model

import excessmtl
from choices import each
from excessmtl.integrations import as_loss


def data(steps):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 6, generator=generator), torch.randn(8, 2, generator=generator)) for _ in range(steps)]


def train(method, take_step, micro_batches=1):
    """Gradients of the last step, and the state of the balancer."""
    model = Model()
    balancer = excessmtl.create(method, tasks=TASKS, shared=model.trunk)
    for number, batch in enumerate(data(6)):
        if number % micro_batches == 0:
            model.zero_grad()
        take_step(balancer, model(*batch)["losses"], number % micro_batches < micro_batches - 1)
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    return gradients, balancer.state_dict()


def assert_same(found, expected, factor=1.0):
    assert torch.allclose(found[0] / factor, expected[0], rtol=1e-5, atol=1e-7)
    for name, tensor in expected[1].items():
        assert torch.allclose(found[1][name].float(), tensor.float(), rtol=1e-5), name


METHODS = ["excess", "uniform", "mgda", "gradnorm"]


@each("method", METHODS)
@each("factor", [1, 1024])
def test_it_is_the_step_of_backward_and_a_factor_is_of_the_gradients_alone(method, factor):
    expected = train(method, lambda balancer, losses, _: balancer.backward(losses))
    found = train(method, lambda balancer, losses, _: (factor * as_loss(balancer, losses)).backward())
    assert_same(found, expected, factor)


@each("method", METHODS)
@each("multiplied", [True, False])
def test_micro_batches(method, multiplied):
    def by_hand(balancer, losses, accumulate):
        balancer.backward({task: loss / 3 for task, loss in losses.items()}, accumulate=accumulate)

    def as_trainers_do(balancer, losses, accumulate):
        scalar = as_loss(balancer, losses, accumulate=accumulate, micro_batches=3, multiplied=multiplied)
        (scalar / 3).backward()

    assert_same(train(method, as_trainers_do, 3), train(method, by_hand, 3))


def test_it_learns_nothing_in_evaluation():
    model = Model()
    balancer = excessmtl.create("excess", tasks=TASKS, shared=model.trunk)
    before = copy.deepcopy(balancer.state_dict())
    (batch,) = data(1)
    with torch.no_grad():
        value = as_loss(balancer, model(*batch)["losses"])
    balancer.eval()
    losses = model(*batch)["losses"]
    assert value == as_loss(balancer, losses) == balancer(losses)
    assert all(torch.equal(before[name], tensor) for name, tensor in balancer.state_dict().items())


def test_a_second_backward_and_losses_of_other_tasks_are_refused():
    model = Model()
    balancer = excessmtl.create("excess", tasks=TASKS, shared=model.trunk)
    loss = as_loss(balancer, model(*data(1)[0])["losses"])
    loss.backward()
    with pytest.raises(ValueError, match="has been taken"):
        loss.backward()
    with pytest.raises(ValueError, match="unknown task 'c'"):  # before any backward
        as_loss(balancer, {"c": torch.ones((), requires_grad=True)})
