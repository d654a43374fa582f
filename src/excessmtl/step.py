"""What one call of `backward` returns."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Step:
    """Weights, losses and excess risks of one step, on the device: reading them is what synchronises.

    All tensors are in task order. A task without labels in the batch has loss and excess risk NaN and keeps the
    weight it last had; a task that was left out because something about it was not finite has weight 0.
    """

    tasks: tuple[str, ...]
    weights: Tensor
    """The multipliers applied to the tasks' gradients on the shared parameters."""
    losses: Tensor
    excess_risks: Tensor
    """NaN for methods that do not estimate them."""
    left_out: Tensor
    """[m] bool."""

    @property
    def skipped(self) -> tuple[str, ...]:
        """The tasks that were left out because their loss or gradient was not finite."""
        return tuple(task for task, out in zip(self.tasks, self.left_out.tolist(), strict=True) if out)

    def to_dict(self) -> dict[str, float]:
        """Plain floats for a logger, by `quantity/task`; excess risks only where they were estimated."""
        quantities = {
            "weights": self.weights,
            "losses": self.losses,
            "excess_risks": self.excess_risks,
            "skipped": self.left_out,
        }
        names = [f"{quantity}/{task}" for quantity in quantities for task in self.tasks]
        values = torch.cat([tensor.float() for tensor in quantities.values()]).tolist()
        plain = dict(zip(names, values, strict=True))
        if all(plain[f"excess_risks/{task}"] != plain[f"excess_risks/{task}"] for task in self.tasks):
            plain = {name: value for name, value in plain.items() if not name.startswith("excess_risks/")}
        return plain
