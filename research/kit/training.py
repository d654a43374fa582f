"""One configuration, trained at all learning rates in all cases of a problem as one batched network."""

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from excessmtl.losses import RobustCrossEntropy, RobustMSELoss
from excessmtl.losses.together import StackableLoss
from research.kit.problems import Data, Problem
from research.kit.rules import Config

HIDDEN = 32  # units of each of the two hidden layers
_DECAY = 0.01  # of the weights under AdamW, decoupled


class Training:
    """One backward pass and one step for all runs; each trains as it would alone."""

    def __init__(self, problem: Problem, data: Data, config: Config) -> None:
        self._batch, self._data, self._config = problem.batch_size, data, config
        self._inputs, self._targets = torch.as_tensor(data.inputs), [torch.as_tensor(own) for own in data.targets]
        self._number, rates = len(self._inputs), problem.rates
        runs = self._number * len(rates)
        self._rows = torch.arange(runs) % self._number
        self._generator = Generator().manual_seed(0)
        # The first layers start twice as large in variance as nn.Linear's do.
        self._trunk = [*self._layer(self._inputs.shape[2], HIDDEN, 2), *self._layer(HIDDEN, HIDDEN, 2)]
        self._heads = [self._layer(HIDDEN, classes or 1, 1) for classes in data.classes]
        kinds: list[type[StackableLoss]] = [RobustCrossEntropy if own else RobustMSELoss for own in data.classes]
        self._losses = [[kind(reduction="none") for _ in range(runs)] for kind in kinds]
        self._rule = config.rule(runs, data.classes)
        self._parameters = [*self._trunk, *(tensor for head in self._heads for tensor in head)]
        self._means = [torch.zeros_like(tensor) for tensor in self._parameters]
        self._squares = [torch.zeros_like(tensor) for tensor in self._parameters]
        self._rate = torch.tensor(rates).repeat_interleave(self._number)[:, None, None]
        self._update = self._adamw if problem.optimizer == "adamw" else self._sgd
        self._step = 0

    def run(self, epochs: int) -> tuple[Tensor, Tensor]:
        """Train, then score every run: all cases at the first learning rate, then at the next.

        [runs, tasks] on clean test labels: accuracy in percent, or the squared error in percent of the variance, with a
        minus. [runs] on noisy validation labels: the mean over the tasks of the relative squared error or minus
        accuracy, lower is better.
        """
        count, end = self._data.training, self._data.training + self._data.validation
        for _ in range(epochs):
            order = torch.stack([torch.randperm(count, generator=self._generator) for _ in range(self._number)])
            for start in range(0, count - self._batch + 1, self._batch):
                self._train(order[:, start : start + self._batch][self._rows])
        return self._score(slice(end, None)), self._score(slice(count, end)).div(-100).mean(1)

    def _layer(self, inputs: int, outputs: int, gain: float) -> tuple[Tensor, Tensor]:
        """Weights and biases, the same at first for all runs of a case."""
        layer = []
        for rows, fan in ((inputs, inputs / gain), (1, inputs)):
            drawn = torch.rand(self._number, rows, outputs, generator=self._generator) * 2 - 1
            layer.append((drawn / math.sqrt(fan))[self._rows].clone().requires_grad_())
        return layer[0], layer[1]

    def _represent(self, inputs: Tensor) -> Tensor:
        first, first_bias, second, second_bias = self._trunk
        return torch.baddbmm(second_bias, torch.baddbmm(first_bias, inputs, first).relu(), second).relu()

    def _loss(self, task: int, outputs: Tensor, targets: Tensor) -> Tensor:
        """[runs] mean losses from outputs [runs, batch, classes or 1] and targets [runs, batch]."""
        classes, losses = self._data.classes[task], self._losses[task]
        outputs = outputs if classes else outputs[..., 0]
        if self._config.robust:
            every = torch.ones_like(targets, dtype=torch.bool)
            # One call for all runs; each of them has its own estimate of the noise.
            entries, lesson = type(losses[0]).entries(losses, outputs, targets, every)
            if lesson is not None:
                lesson.learn()
        elif classes:
            entries = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        else:
            entries = (outputs - targets).square()
        return entries.mean(-1)

    def _train(self, rows: Tensor) -> None:
        """One step of every run."""
        self._step += 1
        case = self._rows[:, None]
        shared = self._represent(self._inputs[case, rows])
        leaf = shared.detach().requires_grad_()
        values, pulls, own = [], [], []
        for task, (weight, bias) in enumerate(self._heads):
            value = self._loss(task, torch.baddbmm(bias, leaf, weight), self._targets[task][case, rows])
            pull, *gradients = torch.autograd.grad(value.sum(), [leaf, weight, bias])
            values.append(value.detach())
            pulls.append(pull)
            own.append(gradients)
        with torch.no_grad():
            every = torch.stack(pulls, 1)
            weights = self._rule(torch.stack(values, 1), leaf.detach(), every, self._step)
            down = (weights[:, :, None, None] * every).sum(1)
            if self._config.weighted_heads:
                own = [[g * weights[:, i, None, None] for g in gradients] for i, gradients in enumerate(own)]
        trunk = torch.autograd.grad(shared, self._trunk, down)
        self._update([*trunk, *(gradient for gradients in own for gradient in gradients)])

    @torch.no_grad()
    def _adamw(self, gradients: list[Tensor]) -> None:
        torch._foreach_lerp_(self._means, gradients, 0.1)
        torch._foreach_mul_(self._squares, 0.999)
        torch._foreach_addcmul_(self._squares, gradients, gradients, 0.001)
        short, long = 1 - 0.9**self._step, 1 - 0.999**self._step
        for parameter, mean, square in zip(self._parameters, self._means, self._squares, strict=True):
            parameter.mul_(1 - self._rate * _DECAY)
            parameter.addcdiv_(mean * (self._rate / -short), (square / long).sqrt_().add_(1e-8))

    @torch.no_grad()
    def _sgd(self, gradients: list[Tensor]) -> None:
        torch._foreach_mul_(self._means, 0.9)
        torch._foreach_add_(self._means, gradients)
        for parameter, mean in zip(self._parameters, self._means, strict=True):
            parameter.sub_(self._rate * mean)

    @torch.no_grad()
    def _score(self, rows: slice) -> Tensor:
        """[runs, tasks], higher is better."""
        shared, scores = self._represent(self._inputs[:, rows][self._rows]), []
        for (weight, bias), targets, classes in zip(self._heads, self._targets, self._data.classes, strict=True):
            outputs, target = torch.baddbmm(bias, shared, weight), targets[:, rows][self._rows]
            if classes:
                scores.append(100 * (outputs.argmax(-1) == target).float().mean(-1))
            else:
                scores.append(-100 * (outputs[..., 0] - target).pow(2).mean(-1) / target.var(-1))
        # A training that blew up has learned nothing: worse than any other.
        return torch.stack(scores, 1).nan_to_num(-1e4).clamp(min=-1e4)
