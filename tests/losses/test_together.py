"""Losses of several tasks are computed in the same operations, with the numbers of each alone."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import excessmtl
from excessmtl.losses import RobustBCEWithLogits, RobustCrossEntropy, RobustMSELoss, by_task, missing_labels
from models import DEVICE

KINDS = {"classification": RobustCrossEntropy, "binary": RobustBCEWithLogits, "regression": RobustMSELoss}
TASKS = [f"{kind} {number}" for kind in KINDS for number in range(3)]


def batch(seed):
    """Outputs and labels of which some are wrong, and some missing; the last task of a kind has a smaller batch."""
    random = torch.Generator().manual_seed(seed)
    outputs, targets = {}, {}
    for task in TASKS:
        kind, number = task.split()
        size = 20 if number == "2" else 32
        label = torch.randint(3, (size,), generator=random)
        logits = torch.randn(size, 3, generator=random)
        seen = torch.where(torch.rand(size, generator=random) < 0.2, torch.randint(3, (size,), generator=random), label)
        logits[torch.arange(size), seen] += 3
        if kind == "classification":
            outputs[task], targets[task] = logits, label
        else:
            outputs[task] = logits[:, 1] - logits[:, 0]
            targets[task] = (label == 1).float() if kind == "binary" else label + 0.1 * logits[:, 2]
        targets[task][: 1 + int(number)] = -100 if kind == "classification" else torch.nan
        if seed % 5 == 4 and number == "1":  # a broken batch, which does not count
            outputs[task][8] = torch.inf
    return (
        {task: output.to(DEVICE).requires_grad_() for task, output in outputs.items()},
        {task: target.to(DEVICE) for task, target in targets.items()},
    )


def losses(**strength):
    made = {task: KINDS[task.split()[0]](reduction="none", strength=strength.get(task[-1])) for task in TASKS}
    return {task: loss.to(DEVICE) for task, loss in made.items()}


@pytest.mark.parametrize("strength", [{}, {"0": 0.5}])
def test_the_numbers_of_each_alone(strength):
    together, alone = losses(**strength), losses(**strength)
    for seed in range(30):
        outputs, targets = batch(seed)
        found, _ = by_task(outputs, targets, TASKS, together)
        for task in TASKS:
            value, _ = by_task({task: outputs[task]}, {task: targets[task]}, [task], {task: alone[task]})
            torch.testing.assert_close(found[task], value[task], equal_nan=True)
            gradients = [torch.autograd.grad(loss, outputs[task])[0] for loss in (found[task], value[task])]
            torch.testing.assert_close(*gradients, equal_nan=True)
    for task in TASKS:
        torch.testing.assert_close(together[task].state_dict(), alone[task].state_dict(), msg=task)
        assert next(iter(together[task].state_dict().values())) == (24 if task[-1] == "1" else 30)  # steps


def test_where_one_fails_none_has_learned():
    made = losses()
    outputs, targets = batch(0)
    by_task(outputs, targets, TASKS, made)
    before = copy.deepcopy([loss.state_dict() for loss in made.values()])
    targets[TASKS[-1]] = targets[TASKS[-1]][:-1]
    with pytest.raises(ValueError, match="must have the shape"):
        by_task(outputs, targets, TASKS, made)
    torch.testing.assert_close([loss.state_dict() for loss in made.values()], before, rtol=0, atol=0)
    made[TASKS[0]](outputs[TASKS[0]], targets[TASKS[0]])  # and each learns again by itself
    assert made[TASKS[0]].rate.steps == 2


def test_a_loss_of_two_tasks_learns_from_both():
    loss, other, expected = RobustMSELoss("none").to(DEVICE), RobustMSELoss("none").to(DEVICE), RobustMSELoss("none")
    tasks = TASKS[6:]
    for seed in range(3):
        outputs, targets = ({task: values[task] for task in tasks} for values in batch(seed))
        by_task(outputs, targets, tasks, dict(zip(tasks, (loss, loss, other), strict=True)))
        for task in tasks[:2]:
            expected.to(DEVICE)(outputs[task], targets[task])
    assert loss.steps == expected.steps == 6


def test_weights_of_each_loss_and_half_precision():
    """Positive labels are weighted by the task's own weight; gradients have the precision of the outputs."""
    torch.manual_seed(0)
    tasks = ["a", "b", "c"]
    outputs = {task: torch.randn(16, 2, device=DEVICE, dtype=torch.float16, requires_grad=True) for task in tasks}
    targets = {task: torch.randint(2, (16, 2), device=DEVICE).float() for task in tasks}
    weights = {"a": torch.tensor(3.0), "b": torch.tensor(5.0), "c": torch.tensor([2.0, 7.0])}
    made = {task: RobustBCEWithLogits(reduction="none", pos_weight=weights[task]).to(DEVICE) for task in tasks}
    found, _ = by_task(outputs, targets, tasks, made)
    for task in tasks:
        alone = RobustBCEWithLogits(pos_weight=weights[task]).to(DEVICE)(outputs[task], targets[task])
        torch.testing.assert_close(found[task], alone)
        gradients = [torch.autograd.grad(loss, outputs[task])[0] for loss in (found[task], alone)]
        assert gradients[0].dtype == torch.float16
        torch.testing.assert_close(*gradients)


def test_processes_learn_task_by_task_whatever_the_shapes(monkeypatch):
    """Other processes may have batches of other shapes: the order of what is summed must not depend on them."""
    order = []
    made = {task: KINDS["regression"](reduction="none").to(DEVICE) for task in "abc"}
    for task, loss in made.items():
        monkeypatch.setattr(loss, "pooled", lambda sums, task=task: order.append(task) or sums)
    monkeypatch.setattr(missing_labels, "processes", lambda: 2)
    sizes = {"a": 4, "b": 6, "c": 4}
    outputs = {task: torch.randn(size, device=DEVICE, requires_grad=True) for task, size in sizes.items()}
    by_task(outputs, {task: torch.randn(size, device=DEVICE) for task, size in sizes.items()}, list(sizes), made)
    assert order == ["a", "a", "b", "b", "c", "c"]


def test_a_second_derivative_is_refused():
    output = torch.randn(8, device=DEVICE, requires_grad=True)
    losses, _ = by_task({"a": output}, {"a": output.detach() + 1}, ["a"], {"a": RobustMSELoss("none").to(DEVICE)})
    with pytest.raises(RuntimeError, match=r"no second derivative.*create_graph=True; call the loss of each task"):
        torch.autograd.grad(losses["a"], output, create_graph=True)


class Operators(TorchDispatchMode):
    """Counts them."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("kind", "tasks", "more"), [("regression", 7, 123), ("binary", 12, 0)])
def test_operators_of_a_step(kind, tasks, more):
    """Against the same step with plain losses, which are computed one by one."""
    encoder = torch.nn.Linear(8, 16).to(DEVICE)
    heads = torch.nn.ModuleDict({str(task): torch.nn.Linear(16, 1) for task in range(tasks)}).to(DEVICE)
    x, target = torch.randn(32, 8, device=DEVICE), torch.randint(2, (32,), device=DEVICE).float()
    counts = []
    for robust in (True, False):
        criterion = excessmtl.MultiTaskLoss(dict.fromkeys(heads, kind), encoder, robust=robust)
        for _ in range(3):
            z = encoder(x)
            with Operators() as operators:
                criterion.backward({task: head(z) for task, head in heads.items()}, dict.fromkeys(heads, target))
        counts.append(operators.count)
    assert counts[0] < counts[1] + more
