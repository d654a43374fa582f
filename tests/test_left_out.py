"""Tasks that are left out again and again are reported: once, and with what to do."""

import re
import warnings

import pytest
import torch

from choices import PAPER, ROBUST, UNIFORM, both_forms
from excessmtl.step.notices import IN_A_ROW
from models import DEVICE, TASKS
from steps import started, take_step, trained

ALL, ONE = "every task of a step was left out", f"left out of {IN_A_ROW} batches in a row"


def told(function, *arguments, **how):
    """What was warned about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments, **how)
    return [str(one.message) for one in caught]


def steps(balancer, model, count, bad=(), missing=(), masked=False, scalar=False):
    nobody = {task: torch.zeros(8, dtype=torch.bool, device=DEVICE) for task in TASKS}
    for _ in range(count):
        losses = {task: loss for task, loss in model.losses().items() if task not in missing}
        losses = {task: loss * (torch.nan if task in bad else 1) for task, loss in losses.items()}
        take_step(balancer, losses, scalar, mask=nobody if masked else None)
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()


@both_forms
@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_nan_in_all_losses_is_reported_once_with_the_remedy(method, scalar):
    model, balancer = started(method)
    (warning,) = told(steps, balancer, model, 3, bad=TASKS, scalar=scalar)
    assert ALL in warning
    assert "mask=" in warning
    assert "None" in warning


LONG, BAD = 3 * IN_A_ROW, {"bad": "b"}
RUNS = {
    # What happens, so many steps each, and what is told.
    "not yet ten": ([(IN_A_ROW - 1, BAD)], []),
    "one task": ([(LONG, BAD)], [f"task 'b' has been {ONE}.*mask="]),
    "one, and then another": ([(LONG, BAD), (LONG, {"bad": "bc"})], ["task 'b' has been", "task 'c' has been"]),
    "tasks that fail together": ([(LONG, {"bad": "ac"})], [r"tasks \['a', 'c'\] have been"]),
    "a step with the task in it ends the row": ([(IN_A_ROW - 1, BAD), (1, {})] * 4, []),
    "a batch without labels of it does not": ([(1, BAD), (1, {"missing": "b"})] * 2 * IN_A_ROW, [ONE]),
    # Tasks that take turns: a batch of one task, which is left out, moves nothing.
    "all tasks of a batch that has some": ([(2, {"bad": "b", "missing": "ac"})], [rf"{ALL}.*\['b'\]"]),
    "masks without labels are nothing to report": ([(2 * IN_A_ROW, {"bad": TASKS, "masked": True})], []),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_is_told_of_a_run(name):
    parts, expected = RUNS[name]
    model, balancer = started(ROBUST)
    warned = [warning for count, how in parts for warning in told(steps, balancer, model, count, **how)]
    assert len(warned) == len(expected)
    assert all(re.search(sentence, warning) for sentence, warning in zip(expected, warned, strict=True))
    bad = [sum(n for n, how in parts if task in how.get("bad", ()) and "masked" not in how) for task in TASKS]
    assert balancer.skipped.tolist() == bad


def test_the_row_goes_on_after_a_resume():
    model, balancer = started(ROBUST)
    steps(balancer, model, IN_A_ROW - 1, bad="b")
    resumed = ROBUST.create(model.trunk)
    resumed.load_state_dict(balancer.state_dict())
    (warning,) = told(steps, resumed, model, 20, bad="b")
    assert ONE in warning


def test_where_warnings_are_errors_the_step_counts_all_the_same():
    model, balancer = started(ROBUST)
    trained(balancer, model, 1)
    with pytest.raises(UserWarning, match=ALL):
        steps(balancer, model, 20, bad=TASKS)
    if DEVICE.type == "cpu":
        assert balancer.steps == 2
        assert balancer.last_step.skipped == tuple(TASKS)
