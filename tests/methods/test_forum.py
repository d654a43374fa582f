"""FORUM on a problem whose solution is known, and with batches that show one level alone."""

import pytest
import torch
from observing import observe, rule_of, start
from torch import nn

import excessmtl

RHO = 0.3


def test_a_training_loss_may_come_and_go_and_a_validation_loss_is_named_by_an_option():
    model = nn.Linear(2, 2)
    balancer = excessmtl.create("forum", tasks=["a", "b", "a_val"], shared=model, validation=["a_val"])
    losses = {task: (place + model(torch.ones(1, 2))).square().sum() for place, task in enumerate(balancer.tasks)}
    balancer.backward(losses)
    balancer.add_task("c")
    assert balancer.state["simplex"].tolist() == [0, 0, 1, 0]
    balancer.remove_task("b")
    assert balancer.tasks == ("a", "a_val", "c")
    assert balancer.state["simplex"].tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="validation must be a list of some"):
        balancer.remove_task("a_val")


def test_batches_with_one_level_alone():
    rule = rule_of("forum", 4, validation=["task2", "task3"], rho=RHO)
    state, gradients = start(rule, 4, 4), torch.eye(4)
    training = rule.update(state, observe(gradients, ok=[True, True, False, False]))
    assert training.weights[:2].tolist() == pytest.approx([RHO / 2, RHO / 2])  # d = rho grad q
    assert torch.equal(training.state["simplex"], state["simplex"])
    validation = rule.update(state, observe(gradients, ok=[False, False, True, True]))
    assert validation.weights.tolist() == pytest.approx([0, 0, 0.5, 0.5])  # the shortest, as MGDA
    assert not validation.state["logits"].any()
