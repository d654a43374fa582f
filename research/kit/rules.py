"""Weights of the tasks, [runs, tasks], for all runs at once."""

import torch
from torch import Tensor

from research.kit.configs import Config

_FIRST = 20  # steps that r0 and n0 are means of


class Excess:
    """The library's rule where every loss is a likelihood (docs/estimators.md): the scales of the first steps."""

    def __init__(self, runs: int, classes: list[int]) -> None:
        self._of_classes = torch.tensor(classes) > 0
        self._loss, self._first_loss, self._first_norm = (torch.zeros(runs, len(classes)) for _ in range(3))

    def __call__(self, losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
        """The weights from this step's losses [runs, tasks], the representation [runs, batch, hidden] and the gradients
        of the mean losses there [runs, tasks, batch, hidden]."""
        self._loss += 0.01 * (losses - self._loss)
        if step <= _FIRST:
            inputs = torch.cat([shared, shared.new_ones(*shared.shape[:2], 1)], -1)
            self._first_norm += (inputs.transpose(1, 2)[:, None] @ pulls).flatten(2).norm(dim=2)
            self._first_loss += losses
        seen, ours = min(step, _FIRST), self._of_classes
        first = torch.maximum(self._first_loss / seen, self._loss / (1 - 0.99**step) / 2).clamp(min=1e-8)
        scale = 0.5 * ((self._first_norm / seen).clamp(min=1e-8) * first).log()
        common = (scale * ours).sum(1, keepdim=True) / ours.sum().clamp(min=1)
        return torch.where(ours, -common, -scale).softmax(1) * losses.shape[1]


class LossValues:
    """Rivals that look at the losses alone: "uniform", "uw" (at its optimum) and "famo"."""

    def __init__(self, config: Config, runs: int, tasks: int) -> None:
        self._rule = config.rule
        self._running, self._logits, self._mean, self._square = (torch.zeros(runs, tasks) for _ in range(4))

    def __call__(self, losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
        """The weights from this step's losses."""
        losses = losses.clamp(min=1e-8)
        if self._rule == "uniform":
            return torch.ones_like(losses)
        if self._rule == "uw":
            self._running += 0.02 * (losses - self._running)
            return 0.5 * (1 - 0.98**step) / self._running
        if step > 1:  # the losses of the next batch stand in for those after the step
            fall = self._running.log() - losses.log()
            share = self._logits.softmax(1)
            gradient = share * (fall - (share * fall).sum(1, keepdim=True)) + 1e-3 * self._logits
            self._mean += 0.1 * (gradient - self._mean)
            self._square += 0.001 * (gradient**2 - self._square)
            size = (self._square / (1 - 0.999 ** (step - 1))).sqrt() + 1e-8
            self._logits -= 0.025 * self._mean / (1 - 0.9 ** (step - 1)) / size
        self._running = losses
        return (self._logits - losses.log()).softmax(1) * losses.shape[1]


class IMTL:
    """IMTL-G: weights under which the sum has the same projection on every task's direction; they sum to m."""

    def __call__(self, losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
        """The weights from the gradients at the representation."""
        tasks = pulls.shape[1]
        rows = pulls.flatten(2)
        units = rows / rows.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        apart, turned = rows[:, :1] - rows[:, 1:], (units[:, :1] - units[:, 1:]).transpose(1, 2)
        matrix = apart @ turned + 1e-12 * torch.eye(tasks - 1)
        solved = torch.linalg.solve_ex(matrix.transpose(1, 2), (rows[:, :1] @ turned).transpose(1, 2))[0][..., 0]
        weights = torch.cat([1 - solved.sum(1, keepdim=True), solved], 1) * tasks
        return torch.nan_to_num(weights, nan=1.0).clamp(-20, 20)
