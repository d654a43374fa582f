"""The problems that the default was chosen on. None of them is in studies/robustness."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
"""What `research.kit.prepare` writes: fx, fy (Fashion-MNIST), and NAME_x, NAME_y of every table."""

_SGD_RATES = (3e-3, 1e-2, 3e-2, 1e-1)


@dataclass(frozen=True)
class Data:
    """Rows to train on, then those to validate on, then the test rows; of several cases, with a first dimension."""

    inputs: Array
    targets: Sequence[Array]
    classes: Sequence[int]
    """Of every task; 0: the target is a number."""
    training: int
    validation: int


@dataclass(frozen=True)
class Case:
    """A share of labels that are disturbed, how, and the seed of data and noise."""

    level: float
    kind: str
    seed: int


@dataclass(frozen=True)
class Problem:
    """How the data is made, which tasks are noisy and how, and how a network is trained."""

    make: Callable[[Arrays, int], Data]
    noisy: Sequence[int]
    noise: Sequence[tuple[float, str]]
    """Levels and kinds of noise (`disturbed`), beside no noise at all."""
    batch_size: int
    epochs: int
    rate: float = 0.001
    """The middle one of the learning rates under AdamW."""
    optimizer: str = "adamw"

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that each configuration chooses from."""
        return (self.rate / 3, self.rate, self.rate * 3) if self.optimizer == "adamw" else _SGD_RATES

    def cases(self, seeds: int) -> list[Case]:
        """Every noise with every seed."""
        return [Case(*noise, seed) for noise in ((0.0, "none"), *self.noise) for seed in range(seeds)]


def _fashion(arrays: Arrays, seed: int, tasks: Sequence[str]) -> Data:
    """Two pictures side by side, at 7 x 7 pixels."""
    draw = np.random.RandomState(100 + seed)
    training, validation = 2000, 1000
    count, pictures = training + validation + 2000, len(arrays["fx"])
    one, two = draw.randint(0, pictures, count), draw.randint(0, pictures, count)
    small = arrays["fx"].reshape(pictures, 7, 2, 7, 2).mean((2, 4)).reshape(pictures, -1) / 255.0
    inputs = (np.concatenate([small[one], small[two]], 1) - 0.3) * 3
    left, right = arrays["fy"][one].astype(int), arrays["fy"][two].astype(int)
    bright = small[one].mean(1)
    made = {"left": (left, 10), "right": (right, 10), "shoe": (np.isin(left, (5, 7, 9)).astype(int), 2)}
    made["bright"] = (((bright - bright.mean()) / bright.std()).astype(np.float32), 0)
    targets, classes = zip(*(made[task] for task in tasks), strict=True)
    return Data(inputs.astype(np.float32), targets, classes, training, validation)


def _table(arrays: Arrays, seed: int, name: str, training: int, validation: int, columns: Any = slice(None)) -> Data:
    """Rows of a table; inputs and numbers to predict in units of their standard deviation. At most 4,000 to test."""
    rows = np.random.RandomState(200 + seed).permutation(len(arrays[f"{name}_x"]))[: training + validation + 4000]
    inputs, targets = arrays[f"{name}_x"][rows].astype(np.float32), arrays[f"{name}_y"][rows][:, columns]
    inputs = ((inputs - inputs[:training].mean(0)) / (inputs[:training].std(0) + 1e-6)).clip(-5, 5).astype(np.float32)
    classes = 2 if np.issubdtype(targets.dtype, np.integer) else 0
    if not classes:
        targets = ((targets - targets[:training].mean(0)) / targets[:training].std(0)).astype(np.float32)
    return Data(inputs, list(targets.T), [classes] * targets.shape[1], training, validation)


def _waves(arrays: Arrays, seed: int) -> Data:
    """Sums of sines of eight inputs, four tasks: the higher the frequency, the more slowly they are learned."""
    draw, targets = np.random.RandomState(300 + seed), []
    inputs = draw.randn(6500, 8).astype(np.float32)
    for frequency in (0.3, 0.6, 1.0, 1.6):
        values = np.sin(3 * frequency * inputs @ (draw.randn(8, 2) / np.sqrt(8)) + draw.rand(2)).sum(1)
        targets.append(((values - values.mean()) / values.std()).astype(np.float32))
    return Data(inputs, targets, [0] * 4, 2500, 1000)


_CLASS_NOISE = ((0.4, "uniform"), (0.8, "uniform"), (0.4, "swap"))
_NUMBER_NOISE = ((0.4, "swap"), (0.8, "swap"), (0.4, "outliers"))
_OTHER = ((0.4, "swap"), (0.8, "uniform"), (0.4, "shift"))
_FLOWS = [0, 2, 3, 4, 5, 6, 7]  # all but one, whose test error a few rows decide
_MOLECULES = partial(_table, name="qm9", training=2400, validation=800)
_GEMS = partial(_table, name="d", training=2500, validation=1000, columns=[0, 1])
_RIVER = partial(_table, name="rf1", training=2500, validation=1000, columns=_FLOWS)
PROBLEMS: dict[str, Problem] = {
    "pairs": Problem(partial(_fashion, tasks=["left", "right"]), [1], _CLASS_NOISE, 100, 20, 0.005),
    "hard-easy": Problem(partial(_fashion, tasks=["left", "shoe", "right"]), [2], _CLASS_NOISE, 100, 15, 0.01),
    "mixed": Problem(partial(_fashion, tasks=["left", "bright", "right"]), [2], _CLASS_NOISE, 100, 15, 0.01),
    "yeast": Problem(partial(_table, name="yeast", training=1200, validation=500), (0, 3, 6, 9), _CLASS_NOISE, 64, 12),
    "emotions": Problem(partial(_table, name="emotions", training=330, validation=100), (0, 3), _CLASS_NOISE, 32, 20),
    "bias": Problem(partial(_table, name="bias", training=2500, validation=1000), [1], _OTHER, 64, 15, 0.01),
    "rf1": Problem(_RIVER, (0, 2, 5), _NUMBER_NOISE, 64, 10, 0.01),
    "rf1-majority": Problem(_RIVER, range(5), _NUMBER_NOISE[:2], 64, 10, 0.005),
    "atp1d": Problem(partial(_table, name="atp1d", training=200, validation=60), (0, 3), _NUMBER_NOISE, 32, 40),
    "jura": Problem(partial(_table, name="jura", training=220, validation=60), [1], _NUMBER_NOISE, 32, 50),
    "diamonds": Problem(_GEMS, [0], _OTHER, 64, 15, 0.003),
    "qm9": Problem(_MOLECULES, (3, 7, 14), _NUMBER_NOISE, 100, 10, 0.005),
    "qm9-short": Problem(_MOLECULES, (2, 6), _NUMBER_NOISE[:2], 100, 4, 0.01),
    "waves": Problem(_waves, (1,), _NUMBER_NOISE, 64, 15, 0.005),
}
PROBLEMS |= {
    "pairs-short": replace(PROBLEMS["pairs"], epochs=5, rate=0.015),
    **{f"{name}-sgd": replace(PROBLEMS[name], optimizer="sgd") for name in ("pairs", "bias")},
}


def disturbed(target: Array, classes: int, case: Case, draw: np.random.RandomState) -> Array:
    """The labels of a noisy task.

    Classes: "uniform" draws them anew, "swap" turns them into the next one. Numbers: "uniform" adds normal noise of
    the target's standard deviation, "outliers" ten times that, "shift" adds two standard deviations, "swap" takes the
    value of another row.
    """
    count, made = len(target), target.copy()
    hit = draw.permutation(count)[: round(case.level * count)]
    if classes:
        made[hit] = draw.randint(0, classes, len(hit)) if case.kind == "uniform" else (made[hit] + 1) % classes
    elif case.kind == "swap":
        made[hit] = target[draw.permutation(count)[: len(hit)]]
    else:
        drawn = {"shift": np.full(len(hit), 2.0), "outliers": 10 * draw.randn(len(hit))}
        made[hit] += drawn.get(case.kind, draw.randn(len(hit))) * target.std()
    return made


def load(problem: Problem, arrays: Arrays, cases: Sequence[Case]) -> Data:
    """All cases, their training and validation labels disturbed; what has the same seed has the same samples."""
    data = {seed: problem.make(arrays, seed) for seed in dict.fromkeys(case.seed for case in cases)}
    first = data[cases[0].seed]
    end = first.training + first.validation

    def labels(case: Case, task: int) -> Array:
        target, draw = data[case.seed].targets[task], np.random.RandomState(7 * case.seed + 31 * task + 5)
        if task not in problem.noisy:
            return target
        return np.concatenate([disturbed(target[:end], first.classes[task], case, draw), target[end:]])

    return replace(
        first,
        inputs=np.stack([data[case.seed].inputs for case in cases]),
        targets=[np.stack([labels(case, task) for case in cases]) for task in range(len(first.classes))],
    )
