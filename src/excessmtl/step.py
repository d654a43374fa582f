"""What one call of `backward` returns, and what it is made from."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from excessmtl.engine.task_gradients import Contribution, TaskGradients

_QUANTITIES = ("weights", "losses", "excess_risks", "skipped")
"""The rows of `numbers`, as a logger sees them."""


@dataclass(frozen=True)
class Step:
    """Weights, losses and excess risks of one step, on the device: reading them is what synchronises.

    All tensors are in task order. A task without labels in the batch has loss and excess risk NaN and keeps the
    weight it last had; a task that was left out because something about it was not finite has weight 0.
    """

    tasks: tuple[str, ...]
    numbers: Tensor
    """[4, m]: weights, losses, excess risks, and 1 for tasks that were left out."""

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
        """The losses as they came."""
        return self.numbers[1]

    @property
    def excess_risks(self) -> Tensor:
        """NaN for methods that do not estimate them."""
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
        """Plain floats for a logger, by `quantity/task`; excess risks only where they were estimated."""
        names = [f"{quantity}/{task}" for quantity in _QUANTITIES for task in self.tasks]
        values = self.numbers.flatten().tolist()
        plain = dict(zip(names, values, strict=True))
        if all(plain[f"excess_risks/{task}"] != plain[f"excess_risks/{task}"] for task in self.tasks):
            plain = {name: value for name, value in plain.items() if not name.startswith("excess_risks/")}
        return plain


@dataclass
class Outcome:
    """What a step is going to do. Nothing has been changed yet."""

    parts: list[Contribution] | None
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
