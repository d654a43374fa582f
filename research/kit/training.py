"""All runs of a problem trained as one batched network."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from research.kit.cases import Cases
from research.kit.configs import Runs
from research.kit.losses import Classification, Regression
from research.kit.problems import VALIDATION, Problem
from research.kit.rules import Rules, Statistics

_DECAY = 0.01
"""Of the weights, decoupled."""


@dataclass(frozen=True)
class Outcome:
    """Of every run."""

    scores: Tensor
    """[runs, tasks] on clean test labels: accuracy in percent, or the squared error in percent of the variance, with a
    minus."""
    validation: Tensor
    """[runs] on noisy labels, lower is better: mean over the tasks of the relative squared error or minus accuracy."""
    weights: Tensor
    """[runs, tasks] shares, mean over the last epoch."""
    noise: Tensor
    """[runs, tasks] as the losses estimate it."""


class Training:
    """One backward pass and one AdamW step for all runs; each trains as it would alone.

    Heads receive their own gradients, the trunk the weighted ones.
    """

    def __init__(self, problem: Problem, cases: Cases, runs: Runs) -> None:
        self._batch, self._cases, self._runs = problem.batch_size, cases, runs
        self._rows = torch.arange(runs.count, device=runs.device) % len(runs.cases)
        self._generator = Generator(device=runs.device).manual_seed(0)
        features, hidden = cases.inputs.shape[2], problem.hidden
        # The first layers start twice as large in variance as nn.Linear's do.
        self._trunk = [
            self._initial(features, hidden, features / 2),
            self._initial(1, hidden, features),
            self._initial(hidden, hidden, hidden / 2),
            self._initial(1, hidden, hidden),
        ]
        self._heads = [
            (self._initial(hidden, classes or 1, hidden), self._initial(1, classes or 1, hidden))
            for classes in cases.classes
        ]
        self._losses = [Classification(runs, classes) if classes else Regression(runs) for classes in cases.classes]
        self._statistics = Statistics(runs.count, len(cases.classes), hidden, self._generator, runs.device)
        self._rules = Rules(runs)
        self._parameters = [*self._trunk, *(one for head in self._heads for one in head)]
        self._means = [torch.zeros_like(one) for one in self._parameters]
        self._squares = [torch.zeros_like(one) for one in self._parameters]
        self._rate = runs.learning_rates()[:, None, None]
        self._step = 0

    def run(self, epochs: int) -> Outcome:
        """Train, then score."""
        count = self._cases.training_rows
        for _ in range(epochs):
            shares = torch.zeros(self._runs.count, len(self._heads), device=self._runs.device)
            order = self._order(count)
            for start in range(0, count - self._batch + 1, self._batch):
                weights = self._train(order[:, start : start + self._batch][self._rows])
                shares += weights / weights.sum(1, keepdim=True)
        end = count + VALIDATION
        scores = self._score(slice(end, None), self._cases.test)
        kept = self._score(slice(count, end), self._cases.validation) / -100
        noise = torch.stack([loss.noise for loss in self._losses], 1)
        return Outcome(scores, kept.mean(1), shares / (count // self._batch), noise)

    def _order(self, count: int) -> Tensor:
        """[cases, count] the rows of one epoch, in an order of its own for every case."""
        device, cases = self._runs.device, self._runs.cases
        return torch.stack([torch.randperm(count, generator=self._generator, device=device) for _ in cases])

    def _initial(self, rows: int, columns: int, fan: float) -> Tensor:
        """The same for all runs of a case."""
        shape = (len(self._runs.cases), rows, columns)
        drawn = torch.rand(*shape, generator=self._generator, device=self._runs.device) * 2 - 1
        return (drawn / math.sqrt(fan))[self._rows].clone().requires_grad_()

    def _represent(self, inputs: Tensor, part: slice = slice(None)) -> Tensor:
        first, first_bias, second, second_bias = (one[part] for one in self._trunk)
        return torch.baddbmm(second_bias, torch.baddbmm(first_bias, inputs, first).relu(), second).relu()

    def _train(self, rows: Tensor) -> Tensor:
        """One step of every run; its weights."""
        self._step += 1
        case = self._rows[:, None]
        shared = self._represent(self._cases.inputs[case, rows])
        values, pulls, own = [], [], []
        for head, loss, targets in zip(self._heads, self._losses, self._cases.training, strict=True):
            leaf = shared.detach().requires_grad_()
            seen = loss(torch.baddbmm(head[1], leaf, head[0]), targets[case, rows], self._step)
            pull, *gradients = torch.autograd.grad((seen.factors * seen.plain).mean(-1).sum(), [leaf, *head])
            values.append(seen.values)
            pulls.append(pull)
            own += gradients
        with torch.no_grad():
            every = torch.stack(pulls, 1)
            known = self._statistics.update(torch.stack(values, 1), shared, every, self._step)
            weights = self._rules(known, every)
            down = torch.einsum("kt,ktbh->kbh", weights, every)
        self._adamw([*torch.autograd.grad(shared, self._trunk, down), *own])
        return weights

    @torch.no_grad()
    def _adamw(self, gradients: list[Tensor]) -> None:
        torch._foreach_lerp_(self._means, gradients, 0.1)
        torch._foreach_mul_(self._squares, 0.999)
        torch._foreach_addcmul_(self._squares, gradients, gradients, 0.001)
        short, long = 1 - 0.9**self._step, 1 - 0.999**self._step
        for parameter, mean, square in zip(self._parameters, self._means, self._squares, strict=True):
            parameter.mul_(1 - self._rate * _DECAY)
            parameter.sub_(self._rate * (mean / short) / ((square / long).sqrt() + 1e-8))

    @torch.no_grad()
    def _score(self, rows: slice, targets: list[Tensor]) -> Tensor:
        """[runs, tasks], higher is better; a configuration at a time, as test sets are large."""
        found, cases = [], len(self._runs.cases)
        for start in range(0, self._runs.count, cases):
            part = slice(start, start + cases)
            shared = self._represent(self._cases.inputs[:, rows], part)
            scores = []
            for (weight, bias), target, classes in zip(self._heads, targets, self._cases.classes, strict=True):
                outputs = torch.baddbmm(bias[part], shared, weight[part])
                if classes:
                    scores.append(100 * (outputs.argmax(-1) == target).float().mean(-1))
                else:
                    scores.append(-100 * (outputs[..., 0] - target).pow(2).mean(-1) / target.var(-1))
            found.append(torch.stack(scores, 1))
        return torch.cat(found)
