"""Algorithm 1 on MultiMNIST, with each step's estimate in two parts: its signal and what the mini-batch adds.

With g the gradient of a mini-batch and s the sum of its squares, the estimate is sum_k g_k^2 / sqrt(s_k) (Eq. 6, 7).
Its signal is sum_k g_k mu_k / sqrt(s_k), with mu the gradient on the distribution that the samples come from.
The rest is there because a mini-batch is a sample; it falls as batches grow. The logarithm of the ratio of two weights
is a sum of differences of estimates, times the step size (Eq. 9), so it has the same two parts.
"""

from collections.abc import Iterator
from itertools import chain, count

import pandas as pd
import torch
from torch import Tensor

from excessmtl.excess.paper import add_squares, excess_risks, reweighed
from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.find import load_benchmark
from excessmtl.lab.data.noise import Noise, apply
from excessmtl.lab.training.batches import Batch, Batches, prepared
from excessmtl.lab.training.model import MultiTaskModel

NOISE, STEP_SIZE = 0.8, 0.01
_OTHERS = 512
"""Samples, not trained on, that mu is estimated from in every step."""


def course(steps: int, size: int, seed: int, bundled: bool) -> pd.DataFrame:
    """A row per step with batches of this size.

    `log_ratio` is the logarithm of the noisy task's weight over that of the clean one, `signal` the part of it that the
    signal of the estimates brought.
    """
    torch.set_num_threads(1)
    benchmark = load_benchmark("multimnist", None, seed, {"bundled": bundled})
    noise = Noise(NOISE, benchmark.noisy_tasks, seed)
    training = _batches(apply(benchmark.train, benchmark.tasks, noise), size, seed)
    others = _batches(apply(benchmark.validation, benchmark.tasks, noise, part="validation"), _OTHERS, seed)
    torch.manual_seed(seed)
    network = MultiTaskModel(benchmark)
    optimiser = torch.optim.Adam(network.parameters(), benchmark.recipe.learning_rate)
    scores, signals = torch.zeros(2), torch.zeros(2)
    squares = torch.zeros(2, sum(parameter.numel() for parameter in network.shared.parameters()))
    rows = []
    for step, batch, other in zip(range(1, steps + 1), training, others, strict=False):
        population = _gradients(network, benchmark, other)
        gradients = _gradients(network, benchmark, batch)
        risks = excess_risks(gradients, squares)
        add_squares(squares, gradients)
        # No gradient so far: a parameter adds nothing.
        signals += STEP_SIZE * (gradients * population / squares.sqrt().clamp(min=1e-12)).sum(1)
        scores = reweighed(scores, risks, STEP_SIZE, torch.ones(2, dtype=torch.bool))
        shared = list(network.shared.parameters())
        parts = torch.split(scores.softmax(0) @ gradients, [parameter.numel() for parameter in shared])
        for parameter, part in zip(shared, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        optimiser.step()
        rows.append((step, float(scores[1] - scores[0]), float(signals[1] - signals[0])))
    return pd.DataFrame(rows, columns=["step", "log_ratio", "signal"]).assign(batch_size=size, seed=seed)


def _batches(split: Split, size: int, seed: int) -> Iterator[Batch]:
    batches = Batches(split, size, torch.device("cpu"))
    return chain.from_iterable(batches.shuffled(seed, epoch) for epoch in count())


def _gradients(network: MultiTaskModel, benchmark: Benchmark, batch: Batch) -> Tensor:
    """[2, n] of both tasks at the shared parameters; those of the heads are left in `.grad`."""
    outputs = network(prepared(batch, benchmark))
    losses = [task.kind.loss(outputs[task.name], batch.targets[task.name]) for task in benchmark.tasks]
    shared = list(network.shared.parameters())
    rows = [torch.autograd.grad(loss, shared, retain_graph=True) for loss in losses]
    network.zero_grad()
    torch.autograd.backward(losses, inputs=list(network.heads.parameters()))
    return torch.stack([torch.cat([gradient.flatten() for gradient in row]) for row in rows])
