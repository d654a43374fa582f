"""All metrics of a task, accumulated over the batches of a split."""

import torch
from torch import Tensor

from excessmtl.lab.data.tasks import Task


class Meters:
    """All metrics of one task: `update` with every batch of a split, then `compute`.

    Args:
        task: its kind says what is measured.
        train: its clean training target, by which errors are normalised.
    """

    def __init__(self, task: Task, train: Tensor, device: torch.device) -> None:
        self.metrics = task.kind.metrics
        makers = dict.fromkeys(metric.measure for metric in self.metrics)
        self.seen = False
        self.accumulators = {make: make(task, train).to(device) for make in makers}

    def update(self, output: Tensor, target: Tensor) -> None:
        """Add the labelled examples of one batch."""
        self.seen = True
        for accumulator in self.accumulators.values():
            accumulator.update(output.detach(), target)

    def compute(self) -> dict[str, float]:
        """Metric -> its value over all batches so far."""
        if not self.seen:
            raise ValueError(f"no example was seen, so there is no {self.metrics[0].name}: call update first")
        found = {make: made.compute().reshape(-1).tolist() for make, made in self.accumulators.items()}
        return {metric.name: found[metric.measure][metric.part] for metric in self.metrics}
