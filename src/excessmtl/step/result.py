"""What one call of `backward` returns, and what it is made from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite, isnan

import torch
from torch import Generator, Tensor

from excessmtl.aligned import aligned
from excessmtl.gradients.task_gradients import Contribution, TaskGradients

_QUANTITIES = ("weights", "losses", "excess_risks", "skipped")
"""The rows of `numbers`, as a logger sees them."""


@dataclass(frozen=True)
class TaskStep:
    """One task in one step, as plain numbers; NaN for a loss without labels and an excess risk without an estimate."""

    weight: float
    loss: float
    excess_risk: float
    skipped: bool


@dataclass(frozen=True)
class Step:
    """Weights, losses and excess risks of one step, on the device: reading them is what synchronises.

    All tensors are in task order. A task without labels in the batch has loss and excess risk NaN and keeps the
    weight it last had; a task that was left out because something about it was not finite has weight 0.
    Losses are those of this batch. The excess risks of the default method are running estimates, over many batches, so
    where a batch has a small loss the excess risk beside it may be the larger number.
    `step["price"]` has the numbers of one task, `print(step)` shows all of them as a table.
    """

    tasks: tuple[str, ...]
    numbers: Tensor
    """[4, m]: weights, losses, excess risks, and how many times in a row each task that was left out now has been."""

    @classmethod
    def of(
        cls, tasks: tuple[str, ...], weights: Tensor, losses: Tensor, excess_risks: Tensor, left_out: Tensor
    ) -> "Step":
        """From one tensor [m] for each."""
        return cls(tasks, torch.stack([weights, losses, excess_risks, left_out.to(losses.dtype)]))

    @property
    def weights(self) -> Tensor:
        """The multipliers applied to the tasks' gradients on the shared parameters, after `scale` and `protect`."""
        return self.numbers[0]

    @property
    def losses(self) -> Tensor:
        """The losses as they came; with micro-batches (`accumulate=True`), their sum since the step began."""
        return self.numbers[1]

    @property
    def excess_risks(self) -> Tensor:
        """How much of the loss training can still remove, estimated over the batches so far; NaN without an estimate.

        In units of the running loss, not of this batch's; with `estimator="paper"`, in a unit of its own.
        """
        return self.numbers[2]

    @property
    def left_out(self) -> Tensor:
        """[m] bool."""
        return self.numbers[3] != 0

    @property
    def skipped(self) -> tuple[str, ...]:
        """The tasks that were left out because their loss or gradient was not finite."""
        return tuple(task for task, out in zip(self.tasks, self.left_out.tolist(), strict=True) if out)

    def to_dict(self) -> dict[str, float]:
        """Plain floats for a logger, by `quantity/task`.

        What is not finite is left out, since JSON has no such numbers: the loss of a task without labels, excess risks
        that were not estimated.
        """
        rows = self.numbers.tolist()
        rows[3] = [float(count != 0) for count in rows[3]]
        return {
            f"{quantity}/{task}": value
            for quantity, row in zip(_QUANTITIES, rows, strict=True)
            for task, value in zip(self.tasks, row, strict=True)
            if isfinite(value)
        }

    def __getitem__(self, task: str) -> TaskStep:
        """The numbers of one task."""
        if task not in self.tasks:
            raise KeyError(f"unknown task {task!r}; the tasks are {list(self.tasks)}")
        return _of_task(self.numbers[:, self.tasks.index(task)].tolist())

    def __iter__(self) -> Iterator[str]:
        """The names of the tasks."""
        return iter(self.tasks)

    def __str__(self) -> str:
        """A table with a line per task."""
        tasks = [_of_task(column) for column in self.numbers.T.tolist()]
        table = {"task": list(self.tasks), "weight": [_shown(task.weight) for task in tasks]}
        estimated = any(isfinite(task.excess_risk) for task in tasks)
        # An excess risk is an estimate over many batches, and may be larger than the loss of one.
        loss = "batch loss" if estimated else "loss"
        table[loss] = [str(task.loss) if isnan(task.loss) and task.skipped else _shown(task.loss) for task in tasks]
        if estimated:
            table["excess risk"] = [_shown(task.excess_risk) for task in tasks]
        if any(task.skipped for task in tasks):
            table[""] = ["left out" if task.skipped else "" for task in tasks]
        return aligned(table)


def _of_task(column: list[float]) -> TaskStep:
    weight, loss, excess_risk, in_a_row = column
    return TaskStep(weight, loss, excess_risk, in_a_row != 0)


def _shown(number: float) -> str:
    if isnan(number):
        return "-"
    return f"{number:.4f}" if number == 0 or 1e-3 <= abs(number) < 1e5 else f"{number:.2e}"


@dataclass
class Outcome:
    """What a step is going to do. Nothing has been changed yet."""

    parts: list[Contribution]
    """The gradients to deliver. None where a task turned out to be unusable, and it is not known which."""
    step: Step
    write: Callable[[], None]
    """Changes the balancer's state on the device."""
    value: Tensor | None = None
    """The weighted sum of the losses, for the scalar form."""
    generator: Generator | None = None
    """The random stream after the step, where the rule has used it."""
    waiting: TaskGradients | None = None
    """What the last micro-batch of the step is going to need of this one."""
