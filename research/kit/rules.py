"""Weights of the tasks, [runs, tasks], for all runs at once; the configurations that networks are trained with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Rule = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""The weights from a step's losses [runs, tasks], the representation [runs, batch, hidden], the gradients of the mean
losses there [runs, tasks, batch, hidden], and the number of the step."""
_FIRST = 20  # steps that r0 and n0 are means of


class Excess:
    """The library's rule where every loss is a likelihood (docs/estimators.md): the scales of the first steps."""

    def __init__(self, runs: int, classes: Sequence[int]) -> None:
        self._of_classes = torch.tensor(classes) > 0
        self._loss, self._first_loss, self._first_norm = (torch.zeros(runs, len(classes)) for _ in range(3))

    def __call__(self, losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
        """A `Rule`."""
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


class UW:
    """Uncertainty weighting at its optimum."""

    def __init__(self, runs: int, classes: Sequence[int]) -> None:
        self._running = torch.zeros(runs, len(classes))

    def __call__(self, losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
        """A `Rule`."""
        self._running += 0.02 * (losses.clamp(min=1e-8) - self._running)
        return 0.5 * (1 - 0.98**step) / self._running


class FAMO:
    """The losses of the next batch stand in for those after the step."""

    def __init__(self, runs: int, classes: Sequence[int]) -> None:
        self._before, self._logits, self._mean, self._square = (torch.zeros(runs, len(classes)) for _ in range(4))

    def __call__(self, losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
        """A `Rule`."""
        logs = losses.clamp(min=1e-8).log()
        if step > 1:
            fall = self._before - logs
            share = self._logits.softmax(1)
            gradient = share * (fall - (share * fall).sum(1, keepdim=True)) + 1e-3 * self._logits
            self._mean += 0.1 * (gradient - self._mean)
            self._square += 0.001 * (gradient**2 - self._square)
            size = (self._square / (1 - 0.999 ** (step - 1))).sqrt() + 1e-8
            self._logits -= 0.025 * self._mean / (1 - 0.9 ** (step - 1)) / size
        self._before = logs
        return (self._logits - logs).softmax(1) * losses.shape[1]


def uniform(losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
    """Plain training."""
    return torch.ones_like(losses)


def imtl(losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
    """IMTL-G: weights under which the sum has the same projection on every task's direction; they sum to m."""
    tasks = pulls.shape[1]
    rows = pulls.flatten(2)
    units = rows / rows.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    apart, turned = rows[:, :1] - rows[:, 1:], (units[:, :1] - units[:, 1:]).transpose(1, 2)
    matrix = apart @ turned + 1e-12 * torch.eye(tasks - 1)
    solved = torch.linalg.solve_ex(matrix.transpose(1, 2), (rows[:, :1] @ turned).transpose(1, 2))[0][..., 0]
    weights = torch.cat([1 - solved.sum(1, keepdim=True), solved], 1) * tasks
    return torch.nan_to_num(weights, nan=1.0).clamp(-20, 20)


@dataclass(frozen=True)
class Config:
    """A weighting rule, and a variant of the losses."""

    rule: Callable[[int, Sequence[int]], Rule]
    """From the number of runs, and the classes of every task (0: numbers)."""
    robust: bool = True
    """Whether the losses are the library's robust ones; else the plain ones."""
    weighted_heads: bool = False
    """Whether heads receive weighted gradients; rivals do."""


CONFIGS = {
    "uniform": Config(lambda runs, classes: uniform, robust=False),
    "uw": Config(UW, robust=False, weighted_heads=True),
    "uniform+R": Config(lambda runs, classes: uniform),
    "uw+R": Config(UW, weighted_heads=True),
    "famo+R": Config(FAMO, weighted_heads=True),
    "imtl+R": Config(lambda runs, classes: imtl),
    "default": Config(Excess),
}
