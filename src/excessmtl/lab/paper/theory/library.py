"""The library's own methods on the problems of this study: stochastic gradient descent with a balancer, projected."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import excessmtl
from excessmtl.lab.paper.theory.problems import Array, Problem

_VALUES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logistic": lambda s, y: nn.functional.softplus(-y * s),
    "huber": lambda s, y: nn.functional.huber_loss(s, y, reduction="none", delta=0.5),
    "least squares": lambda s, y: (s - y).square() / 2,
}


def train(
    problem: Problem,
    method: str,
    options: dict[str, Any],
    steps: int,
    rate: float,
    *,
    batch: int | None = None,
    seed: int = 0,
) -> tuple[Array, Array]:
    """`steps` steps of SGD from zero with batches of `batch` samples per task (None: all samples, no noise).

    The parameters before every step, [steps, d], and the weights of its tasks, [steps, m].
    """
    tasks, samples, size = problem.features.shape
    names = [f"task{i + 1}" for i in range(tasks)]
    model = nn.Linear(size, 1, bias=False)
    nn.init.zeros_(model.weight)
    features, targets = (torch.as_tensor(a, dtype=torch.float32) for a in (problem.features, problem.targets))
    balancer = excessmtl.create(method, tasks=names, shared=model, **{"scale": "mean", **options})
    generator = np.random.default_rng(seed)
    thetas, weights = np.zeros((steps, size)), np.zeros((steps, tasks))
    for step in range(steps):
        thetas[step] = model.weight.detach().numpy()[0]
        losses: dict[str, Tensor] = {}
        for i, name in enumerate(names):
            chosen = slice(None) if batch is None else torch.as_tensor(generator.integers(samples, size=batch))
            predictions = model(features[i, chosen])[:, 0]
            losses[name] = _VALUES[problem.kind](predictions, targets[i, chosen]).mean()
        model.zero_grad()
        taken = balancer.backward(losses)
        weights[step] = taken.weights.numpy() / float(taken.weights.sum())
        with torch.no_grad():
            assert model.weight.grad is not None
            model.weight -= rate * model.weight.grad
            length = model.weight.norm()
            model.weight *= torch.where(length > problem.radius, problem.radius / length, 1.0)
    return thetas, weights
