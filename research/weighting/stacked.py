"""Training all runs of a world, every candidate at every noise level and seed, as one batched network."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from excessmtl.lab.data.kinds import classification
from excessmtl.lab.data.tasks import Task
from research.weighting.candidates import Candidate, Weighing
from research.weighting.networks import Perceptrons, apply_head
from research.weighting.statistics import Statistics, look
from research.weighting.worlds import Cases

_WIDTH = 32
"""Of the adapter: a wider representation is projected to it."""


@dataclass(frozen=True)
class Outcome:
    """Tensors [candidates, cases, tasks]."""

    scores: Tensor
    """Accuracy or mean squared error on the test samples."""
    weights: Tensor
    """Mean over the last quarter of the epochs, of the first step of each."""


class StackedTraining:
    """One optimiser and one backward pass for all runs.

    The gradient of a sum over runs is each run's own gradient, and Adam works element by element, so every run trains
    exactly as it would alone. Heads receive their own gradient, the trunk the weighted one, with weights that sum to
    the number of tasks.
    """

    def __init__(self, cases: Cases, candidates: list[Candidate], device: str) -> None:
        self.cases, self.copies, self.device = cases, len(candidates), device
        generator = Generator().manual_seed(0)
        widths = (cases.inputs.shape[-1], *cases.hidden)
        outputs = [task.outputs for task in cases.tasks]
        self.networks = Perceptrons(widths, outputs, len(cases.cases), self.copies, generator, device)
        self._projections = _projections(widths[-1], generator, device)
        self._optimizer = torch.optim.Adam(
            self.networks.parameters(), lr=cases.recipe.learning_rate, weight_decay=cases.recipe.weight_decay
        )
        self._inputs = cases.inputs.to(device)
        self._targets = {name: values.to(device) for name, values in cases.targets.items()}
        self._statistics = Statistics()
        self._weighing = Weighing(candidates, len(cases.cases), device)
        self._order = Generator().manual_seed(1)

    def run(self) -> Outcome:
        """All epochs."""
        log = []
        for _ in range(self.cases.recipe.epochs):
            first, *others = self.batches()
            log.append(self.step(first)[1])
            for rows in others:
                self.step(rows)
        recent = torch.stack(log[-max(1, len(log) // 4) :]).mean(0).cpu()
        return Outcome(self._per_candidate(self.score()), self._per_candidate(recent))

    def batches(self) -> list[Tensor]:
        """Rows [cases, batch] of one epoch's full batches, in an order of its own for every case."""
        samples, size = self._inputs.shape[1], self.cases.recipe.batch_size
        orders = [torch.randperm(samples, generator=self._order) for _ in self.cases.cases]
        order = torch.stack(orders).to(self.device)
        return [order[:, start : start + size] for start in range(0, samples - size + 1, size)]

    def step(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """One step of every run; its losses and weights, [runs, tasks]."""
        self._optimizer.zero_grad()
        shared = self.networks.represent(self._stacked(self._inputs, rows))
        representation = shared.detach().requires_grad_()
        losses, pulls = [], []
        for head, task in zip(self.networks.heads, self.cases.tasks, strict=True):
            loss = _losses(apply_head(head, representation), self._stacked(self._targets[task.name], rows), task)
            pull, *own = torch.autograd.grad(loss.sum(), (representation, *head))
            for parameter, gradient in zip(head, own, strict=True):
                parameter.grad = gradient
            losses.append(loss.detach())
            pulls.append(pull)
        with torch.no_grad():
            every_loss, every_pull = torch.stack(losses, 1), torch.stack(pulls, 1)
            left, right = self._projections or (None, None)
            seen = look(
                every_loss,
                representation if left is None else representation @ left,
                every_pull,
                every_pull if right is None else every_pull @ right,
            )
            weights = self._weighing(self._statistics.update(seen), seen)
            weighted = torch.einsum("rm,rmbp->rbp", weights * len(losses), every_pull)
        torch.autograd.backward(shared, weighted)
        self._optimizer.step()
        return every_loss, weights

    @torch.no_grad()
    def score(self) -> Tensor:
        """Accuracies and mean squared errors on the test samples, [runs, tasks]."""
        representation = self.networks.represent(self.cases.test_inputs.to(self.device).repeat(self.copies, 1, 1))
        scores = []
        for head, task in zip(self.networks.heads, self.cases.tasks, strict=True):
            outputs = apply_head(head, representation)
            targets = _repeat(self.cases.test_targets[task.name].to(self.device), self.copies)
            if task.kind == classification:
                scores.append((outputs.argmax(-1) == targets).float().mean(1))
            else:
                scores.append(((outputs - targets) ** 2).mean((1, 2)))
        return torch.stack(scores, 1).cpu()

    def _stacked(self, values: Tensor, rows: Tensor) -> Tensor:
        """The batch of every case, once for every candidate."""
        case = torch.arange(len(rows), device=rows.device)[:, None]
        return _repeat(values[case, rows], self.copies)

    def _per_candidate(self, values: Tensor) -> Tensor:
        return values.view(self.copies, len(self.cases.cases), -1)


def _projections(width: int, generator: Generator, device: str) -> tuple[Tensor, Tensor] | None:
    """Random matrices for the representation and for its gradients; None where it is narrow enough."""
    if width <= _WIDTH:
        return None
    left, right = (torch.randn(width, _WIDTH, generator=generator).to(device) / math.sqrt(_WIDTH) for _ in range(2))
    return left, right


def _repeat(values: Tensor, copies: int) -> Tensor:
    return values.repeat(copies, *[1] * (values.ndim - 1))


def _losses(outputs: Tensor, targets: Tensor, task: Task) -> Tensor:
    """The mean loss of every run."""
    runs, samples = outputs.shape[:2]
    if task.kind == classification:
        each = F.cross_entropy(outputs.reshape(runs * samples, -1), targets.reshape(-1), reduction="none")
        return each.view(runs, samples).mean(1)
    return ((outputs - targets) ** 2).mean((1, 2))
