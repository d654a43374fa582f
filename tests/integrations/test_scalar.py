"""A scalar whose backward is the balancer's step."""

import copy

import pytest
import torch
from integration_worlds import Model, assert_same, balancer_of, by_hand, loader

from choices import each
from excessmtl import MultiTaskLoss, Recorder
from excessmtl.integrations import as_loss

METHODS = ["excess", "uniform", "mgda", "gradnorm"]


@each("method", METHODS)
@each("factor", [1, 1024])
def test_it_is_the_step_of_backward_and_a_factor_is_of_the_gradients_alone(method, factor):
    def multiplied(balancer, losses, accumulate, micro_batches):
        (factor * as_loss(balancer, losses)).backward()

    assert_same(by_hand(method, take_step=multiplied, factor=factor), by_hand(method))


@each("method", METHODS)
@each("multiplied", [True, False])
def test_micro_batches(method, multiplied):
    def as_trainers_do(balancer, losses, accumulate, micro_batches):
        scalar = as_loss(balancer, losses, accumulate=accumulate, micro_batches=3, multiplied=multiplied)
        (scalar / 3).backward()

    assert_same(by_hand(method, 3, take_step=as_trainers_do), by_hand(method, 3))


def test_it_learns_nothing_in_evaluation():
    model, batch = Model(), next(iter(loader()))
    balancer = balancer_of(model)
    before = copy.deepcopy(balancer.state_dict())
    with torch.no_grad():
        value = as_loss(balancer, model(**batch)["losses"])
    balancer.eval()
    losses = model(**batch)["losses"]
    assert value == as_loss(balancer, losses) == balancer(losses)
    assert all(torch.equal(before[name], tensor) for name, tensor in balancer.state_dict().items())


def test_a_second_backward_and_losses_of_other_tasks_are_refused():
    model = Model()
    balancer = balancer_of(model)
    loss = as_loss(balancer, model(**next(iter(loader())))["losses"])
    loss.backward()
    with pytest.raises(ValueError, match="has been taken"):
        loss.backward()
    with pytest.raises(ValueError, match="unknown task 'c'"):  # before any backward
        as_loss(balancer, {"c": torch.ones((), requires_grad=True)})


def test_a_multi_task_loss_stands_for_its_balancer(tmp_path):
    layer = torch.nn.Linear(2, 1)
    criterion = MultiTaskLoss({"a": "regression"}, layer, "uniform")
    as_loss(criterion, {"a": layer(torch.ones(4, 2)).mean()}).backward()
    assert layer.weight.grad.tolist() == [[1, 1]]
    assert Recorder(tmp_path / "run", criterion).balancer is criterion.balancer
    with pytest.raises(TypeError, match=r"what excessmtl.create returns, or a MultiTaskLoss, found Linear"):
        as_loss(layer, {"a": layer(torch.ones(4, 2)).mean()})
