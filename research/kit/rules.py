"""Weights of the tasks, [runs, tasks], for all runs at once."""

import torch
from torch import Tensor

from research.kit.configs import Config

_FIRST = 20  # steps that r0 and n0 are means of


class Excess:
    """The library's rule (docs/estimators.md)."""

    def __init__(self, config: Config, runs: int, classes: list[int], hidden: int) -> None:
        self._config, tasks = config, len(classes)
        self._likelihoods = torch.tensor([config.likelihoods and count > 0 for count in classes])
        self._loss, self._first_loss, self._first_norm = (torch.zeros(runs, tasks) for _ in range(3))
        # So narrow that the library would not project it either.
        self._signal, self._fisher = (torch.zeros(runs, tasks, hidden + 1) for _ in range(2))

    def __call__(self, losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
        """The weights from this step's losses [runs, tasks], the representation [runs, batch, hidden] and the gradients
        of the mean losses there [runs, tasks, batch, hidden]."""
        share = self._share(shared, pulls, step)
        self._loss += 0.01 * (losses - self._loss)
        if step <= _FIRST:
            self._first_loss += losses
        seen = min(step, _FIRST)
        loss = self._loss / (1 - 0.99**step)
        first = torch.maximum(self._first_loss / seen, loss / 2).clamp(min=1e-8)
        left = (loss * (1 - share) / first).clamp(min=0)
        doubt = self._config.need * share.clamp(min=0.01).log() - self._config.trust * left
        norm = (self._first_norm / seen).clamp(min=1e-8)
        scale, others = 0.5 * (norm * first).log(), ~self._likelihoods
        common = (scale * self._likelihoods).sum(1, keepdim=True) / self._likelihoods.sum().clamp(min=1)
        mean = ((doubt.exp() * others).sum(1, keepdim=True) / others.sum().clamp(min=1)).log()
        return torch.where(others, doubt - mean - scale, -common).softmax(1) * losses.shape[1]

    def _share(self, shared: Tensor, pulls: Tensor, step: int) -> Tensor:
        """e / r; over the first steps more or less the mean of all tasks."""
        batch = shared.shape[1]
        inputs = torch.cat([shared, shared.new_ones(*shared.shape[:2], 1)], -1)
        each = pulls * batch
        mean = inputs.transpose(1, 2)[:, None] @ each / batch
        power = (mean**2).sum(-1)
        fisher = ((each**2).sum(-1) @ inputs**2) / batch
        # Products of the gradients of different samples: noise does not enter their mean.
        signal = (power - fisher / batch) * (batch / (batch - 1))
        self._signal += 0.01 * (signal - self._signal)
        self._fisher += 0.01 * (fisher - self._fisher)
        if step <= _FIRST:
            self._first_norm += power.sum(-1).sqrt()
        damped = (self._fisher + 1e-3 * self._fisher.mean(-1, keepdim=True)).clamp(min=1e-30)
        share = (self._signal / damped).sum(-1).clamp(0, 1)
        return torch.lerp(share.mean(1, keepdim=True), share, min(step / _FIRST, 1))


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
