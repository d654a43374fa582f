"""Tasks that are left out again and again are reported: once, and with what to do."""

import warnings

import pytest
import torch

from excessmtl.step.notices import IN_A_ROW
from models import DEVICE, PAPER, ROBUST, TASKS, UNIFORM, both_forms, mlp, started, take_step, trained

ALL, ONE = "every task of a step was left out", f"left out of {IN_A_ROW} batches in a row"


def told(function):
    """What was warned about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(one.message) for one in caught]


def step(balancer, model, bad=(), missing=(), scalar=False):
    losses = model.losses()
    losses = {task: loss * (torch.nan if task in bad else 1) for task, loss in losses.items() if task not in missing}
    take_step(balancer, losses, scalar)
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def steps(count, balancer, model, **how):
    for _ in range(count):
        step(balancer, model, **how)


@both_forms
@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_nan_in_all_losses_is_reported_once_with_the_remedy(method, scalar):
    model, balancer = started(method)
    (warning,) = told(lambda: steps(3, balancer, model, bad=TASKS, scalar=scalar))
    assert ALL in warning
    assert "mask=" in warning
    assert "None" in warning


def test_one_task_is_reported_after_ten_in_a_row():
    model, balancer = started(ROBUST)
    assert not told(lambda: steps(IN_A_ROW - 1, balancer, model, bad="b"))
    (warning,) = told(lambda: steps(3 * IN_A_ROW, balancer, model, bad="b"))
    assert f"task 'b' has been {ONE}" in warning
    assert "mask=" in warning
    (warning,) = told(lambda: steps(3 * IN_A_ROW, balancer, model, bad="bc"))
    assert "task 'c' has been" in warning


def test_a_step_with_the_task_in_it_ends_the_row():
    model, balancer = started(ROBUST)

    def train():
        for _ in range(4):
            steps(IN_A_ROW - 1, balancer, model, bad="b")
            step(balancer, model)

    assert not told(train)
    assert balancer.skipped.tolist() == [0, 4 * (IN_A_ROW - 1), 0]


def test_a_batch_without_labels_of_the_task_does_not_end_the_row():
    model, balancer = started(ROBUST)

    def train():
        for _ in range(2 * IN_A_ROW):
            step(balancer, model, bad="b")
            step(balancer, model, missing="b")

    (warning,) = told(train)
    assert ONE in warning


def test_tasks_that_fail_together_are_one_warning():
    model, balancer = started(UNIFORM)
    (warning,) = told(lambda: steps(3 * IN_A_ROW, balancer, model, bad="ac"))
    assert "tasks ['a', 'c'] have been" in warning


def test_all_tasks_of_a_batch_that_has_some():
    """Tasks that take turns: a batch of one task, which is left out, moves nothing."""
    model, balancer = started(UNIFORM)
    (warning,) = told(lambda: steps(2, balancer, model, bad="b", missing="ac"))
    assert ALL in warning
    assert "['b']" in warning


def test_masks_without_labels_are_nothing_to_report():
    model, balancer = started(ROBUST)
    nobody = {task: torch.zeros(8, dtype=torch.bool, device=DEVICE) for task in TASKS}

    def train():
        for _ in range(2 * IN_A_ROW):
            losses = model.losses()
            balancer.backward({task: loss * torch.nan for task, loss in losses.items()}, mask=nobody)

    assert not told(train)


def test_the_row_goes_on_after_a_resume():
    model = mlp()
    balancer, resumed = ROBUST.create(model.trunk), ROBUST.create(model.trunk)
    steps(IN_A_ROW - 1, balancer, model, bad="b")
    resumed.load_state_dict(balancer.state_dict())
    (warning,) = told(lambda: steps(20, resumed, model, bad="b"))
    assert ONE in warning


def test_where_warnings_are_errors_the_step_counts_all_the_same():
    model, balancer = started(ROBUST)
    trained(balancer, model, 1)
    with pytest.raises(UserWarning, match=ALL):
        steps(20, balancer, model, bad=TASKS)
    if DEVICE.type == "cpu":
        assert balancer.steps == 2
        assert balancer.last_step.skipped == tuple(TASKS)
