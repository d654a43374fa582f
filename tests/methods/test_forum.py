"""FORUM on a problem whose solution is known, and with batches that show one level alone."""

import pytest
import torch
from observing import observe, rule_of, start
from torch import nn

import excessmtl

RHO = 0.3


def test_the_bilevel_solution_of_a_problem_where_it_is_known():
    """Training losses |omega - a_j|^2 with a = (0, 0), (1, 0): minima of their mixtures lie on the segment between.

    On it both validation losses, |omega - (0.3, 1)|^2 and |omega - (0.3, -1)|^2, are smallest at (0.3, 0): s is
    (0.7, 0.3). Without the lower level every point between (0.3, 1) and (0.3, -1) is Pareto optimal. Steps must become
    shorter: how near the segment the model stays is in proportion to them.
    """
    model = nn.ParameterList([nn.Parameter(torch.tensor([0.9, 0.5]))])
    tasks = {"a": (0.0, 0.0), "b": (1.0, 0.0), "a_val": (0.3, 1.0), "b_val": (0.3, -1.0)}
    balancer = excessmtl.create(
        "forum", tasks=list(tasks), shared=model, validation=["a_val", "b_val"], step_size=0.02, rho=0.5
    )
    for step in range(120):
        model.zero_grad()
        balancer.backward({task: (model[0] - torch.tensor(point)).square().sum() for task, point in tasks.items()})
        with torch.no_grad():
            model[0] -= 0.1 / (1 + step / 20) * model[0].grad
    assert model[0].tolist() == pytest.approx([0.3, 0.0], abs=0.02)
    assert balancer.state["logits"][:2].softmax(0).tolist() == pytest.approx([0.7, 0.3], abs=0.02)


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
