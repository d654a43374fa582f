"""Why the noisy task gains weight under Algorithm 1: what the noise of mini-batches adds to its estimate.

With g the gradient of a mini-batch and s the sum of its squares, the estimate is sum_k g_k^2 / sqrt(s_k) (Eq. 6, 7).
Its signal is sum_k g_k mu_k / sqrt(s_k), with mu the gradient on the distribution that the samples come from.
The rest is there because a mini-batch is a sample; it falls as one over the batch size. The logarithm of the ratio of
two weights is a sum of differences of estimates, times the step size (Eq. 9), so it has the same two parts.
"""

from collections.abc import Iterator
from itertools import chain, count

import pandas as pd
import torch
from joblib import Parallel, delayed
from matplotlib.figure import Figure as Canvas
from torch import Tensor

from excessmtl.excess.paper import add_squares, excess_risks, reweighed
from excessmtl.lab.compare.palette import COLOURS
from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.find import load_benchmark
from excessmtl.lab.data.noise import Noise, apply
from excessmtl.lab.paper.plans import Scale
from excessmtl.lab.paper.registry import SMALL, Drawing, canvas, figure, heading, tidy
from excessmtl.lab.training.batches import Batch, Batches, prepared
from excessmtl.lab.training.model import MultiTaskModel

NOISE, STEP_SIZE = 0.8, 0.01
_OTHERS = 512
"""Samples, not trained on, that mu is estimated from in every step."""
_SIZES = {"quick": (16, 64, 256), "paper": (16, 64, 256, 1024)}
_STEPS = {"quick": 150, "paper": 400}
_SEEDS = {"quick": 1, "paper": 3}
_CURVES = {"log_ratio": ("as trained", "-"), "signal": ("by the signal alone", "--")}


def course(scale: Scale, size: int, seed: int) -> pd.DataFrame:
    """Algorithm 1 on MultiMNIST with batches of this size: a row per step.

    `log_ratio` is the logarithm of the noisy task's weight over that of the clean one, `signal` the part of it that the
    signal of the estimates brought.
    """
    torch.set_num_threads(1)
    benchmark = load_benchmark("multimnist", None, seed, {"bundled": scale == "quick"})
    noise = Noise(NOISE, benchmark.noisy_tasks, seed)
    training = _batches(apply(benchmark.train, benchmark.tasks, noise), size, seed)
    others = _batches(apply(benchmark.validation, benchmark.tasks, noise, part="validation"), _OTHERS, seed)
    torch.manual_seed(seed)
    network = MultiTaskModel(benchmark)
    optimiser = torch.optim.Adam(network.parameters(), benchmark.recipe.learning_rate)
    scores, signals = torch.zeros(2), torch.zeros(2)
    squares = torch.zeros(2, sum(parameter.numel() for parameter in network.shared.parameters()))
    rows = []
    for step, batch, other in zip(range(1, _STEPS[scale] + 1), training, others, strict=False):
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
    return pd.DataFrame(rows, columns=["step", *_CURVES]).assign(batch_size=size, seed=seed)


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


@figure("batch-size", "Why Algorithm 1 favours a noisy task: signal and noise of its estimate, by batch size")
def draw(scale: Scale) -> Drawing:
    """The courses, and the last step of each."""
    jobs = [delayed(course)(scale, size, seed) for size in _SIZES[scale] for seed in range(_SEEDS[scale])]
    courses = pd.concat(Parallel(n_jobs=2)(jobs))
    ends = courses[courses["step"] == _STEPS[scale]].drop(columns="step")
    thin = courses[courses["step"] % 5 == 0]
    return Drawing({"": ends, "_course": thin}, {"": _picture(thin, ends, scale)})


def _picture(courses: pd.DataFrame, ends: pd.DataFrame, scale: Scale) -> Canvas:
    picture = canvas(8.6, 3.8)
    left, right = picture.subplots(1, 2, sharey=True)
    sizes = _SIZES[scale]
    for (column, (name, line)), (colour, _) in zip(_CURVES.items(), COLOURS[1::-1], strict=False):
        for size, width in ((sizes[0], 1.2), (sizes[-1], 2.4)):
            mean = courses[courses["batch_size"] == size].groupby("step")[column].mean()
            left.plot(mean.index, mean, line, color=colour, lw=width, label=f"{name}, batches of {size}")
        own = ends.groupby("batch_size")[column]
        right.errorbar(sizes, own.mean(), own.std(), fmt=f"o{line}", color=colour, label=name)
    right.set_xscale("log", base=2)
    right.set_xticks(sizes, [str(size) for size in sizes])
    for axes in (left, right):
        axes.axhline(0, color="gray", lw=1)
        axes.legend(fontsize=SMALL)
    above = "log weight, noisy task over clean\nabove 0: the noisy task has more"
    tidy(left, "over training", "step", above)
    tidy(right, f"after {_STEPS[scale]} steps", "batch size", "")
    heading(picture, f"MultiMNIST, Algorithm 1; noise {NOISE:g} in the second digit; bars: deviation over seeds")
    return picture
