"""The problems that the default was chosen on. None of them is in studies/robustness."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from research.kit.teacher import HELD_OUT, REGIMES, world

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
"""What `research.kit.prepare` writes: fx, fy (Fashion-MNIST at 14 x 14 pixels), dx, dy (diamonds)."""

VALIDATION = 1500
_TEST = 4000
_COARSE = np.array([0, 1, 0, 1, 0, 2, 0, 2, 3, 2])
"""Tops, bottoms, shoes, bags."""


@dataclass(frozen=True)
class Data:
    """Rows to train on, then 1,500 to validate on, then the test rows. All labels are right."""

    inputs: Array
    targets: list[Array]
    classes: list[int]
    """Of every task; 0: the target is a number."""
    training: int


@dataclass(frozen=True)
class Case:
    """A share of labels that are disturbed, how, and the seed of data and noise."""

    level: float
    kind: str
    seed: int


KINDS = ("uniform", "swap")


@dataclass(frozen=True)
class Problem:
    """How the data is made, which tasks are noisy, and the network: two hidden layers of one width."""

    make: Callable[[Arrays, int], Data]
    noisy: Sequence[int]
    hidden: int
    batch_size: int
    epochs: int
    arrays: Sequence[str] = ()
    """What it needs of `--data`."""


def _fashion(arrays: Arrays, seed: int, training: int, tasks: Sequence[str]) -> Data:
    """Two pictures side by side; "left" and "right" are their classes, the rest is about the left one."""
    draw = np.random.RandomState(100 + seed)
    count, pictures = training + VALIDATION + _TEST, len(arrays["fx"])
    one, two = draw.randint(0, pictures, count), draw.randint(0, pictures, count)
    inputs = np.concatenate([arrays["fx"][one], arrays["fx"][two]], 1) / 255.0 - 0.3
    left, right = arrays["fy"][one].astype(int), arrays["fy"][two].astype(int)
    made = {"left": (left, 10), "right": (right, 10), "coarse": (_COARSE[left], 4)}
    made["shoe"] = ((_COARSE[left] == 2).astype(int), 2)
    made |= {f"is_{number}": ((left == number).astype(int), 2) for number in range(10)}
    chosen = [made[task] for task in tasks]
    return Data(inputs.astype(np.float32), [one for one, _ in chosen], [classes for _, classes in chosen], training)


def _diamonds(arrays: Arrays, seed: int, training: int, columns: Sequence[int]) -> Data:
    """Numbers to predict, of price, x, y, z and depth, in units of their standard deviation."""
    rows = np.random.RandomState(200 + seed).permutation(len(arrays["dx"]))[: training + VALIDATION + _TEST]
    inputs, targets = arrays["dx"][rows], arrays["dy"][rows][:, list(columns)]
    inputs = (inputs - inputs[:training].mean(0)) / (inputs[:training].std(0) + 1e-6)
    targets = (targets - targets[:training].mean(0)) / targets[:training].std(0)
    return Data(inputs.clip(-5, 5), list(targets.T), [0] * len(columns), training)


def _teacher(_: Arrays, seed: int, name: str) -> Data:
    """A world of `research.kit.teacher`, at seeds that no study has used."""
    regime = REGIMES[name]
    inputs, targets = world(regime, 500 + seed)
    end = regime.training + VALIDATION
    kept = np.r_[0:end, regime.training + HELD_OUT : len(inputs)]
    types = [int if classes else np.float32 for classes in regime.classes]
    labels = [target.numpy()[kept].astype(kind) for target, kind in zip(targets, types, strict=True)]
    return Data(inputs.numpy()[kept], labels, list(regime.classes), regime.training)


def _skewed(arrays: Arrays, seed: int) -> Data:
    """The world `hard` with targets to the power of e: most are small, a few are large, and none is wrong."""
    plain = _teacher(arrays, seed, "hard")
    first, targets = slice(plain.training), []
    for target in plain.targets:
        value = np.exp(2.0 * (target - target[first].mean()) / target[first].std())
        targets.append(((value - value[first].mean()) / value[first].std()).astype(np.float32))
    return Data(plain.inputs, targets, plain.classes, plain.training)


def _pictures(training: int, tasks: Sequence[str], noisy: Sequence[int], network: tuple[int, int, int]) -> Problem:
    return Problem(partial(_fashion, training=training, tasks=tasks), noisy, *network, arrays=("fx", "fy"))


def _numbers(columns: Sequence[int], noisy: Sequence[int]) -> Problem:
    return Problem(partial(_diamonds, training=4000, columns=columns), noisy, 64, 64, 30, arrays=("dx", "dy"))


def _world(name: str, noisy: Sequence[int], network: tuple[int, int, int]) -> Problem:
    return Problem(partial(_teacher, name=name), noisy, *network)


PROBLEMS: dict[str, Problem] = {
    "pairs": _pictures(6000, ["left", "right"], [1], (128, 100, 20)),
    "pairs-small": _pictures(1500, ["left", "right"], [1], (128, 50, 50)),
    "hard-easy": _pictures(3000, ["left", "shoe", "right"], [2], (128, 100, 30)),
    "coarse-noisy": _pictures(3000, ["left", "coarse", "shoe"], [1], (128, 100, 30)),
    "binary": _pictures(1500, [f"is_{number}" for number in range(10)], [0, 3, 6], (64, 50, 30)),
    "diamonds": _numbers([0, 1, 4], [1]),
    "diamonds-price": _numbers([0, 1, 2, 3], [0]),
    "t-narrow": _world("narrow", [0], (6, 64, 40)),
    "t-memorise": _world("memorise", [0], (256, 64, 80)),
    "t-hard": _world("hard", [0], (64, 64, 30)),
    "t-skew": Problem(_skewed, [0], 64, 64, 30),
    "t-many": _world("many", range(8), (48, 64, 20)),
    "t-majority": _world("majority", range(4), (64, 64, 30)),
    "t-mixed": _world("mixed", [0, 1], (64, 64, 30)),
}


def disturbed(target: Array, classes: int, case: Case, draw: np.random.RandomState) -> Array:
    """The labels of a noisy task.

    "uniform" draws classes anew and adds normal noise of the target's standard deviation to numbers. "swap" turns a
    class into the next one and gives numbers the value of another row.
    """
    count, made = len(target), target.copy()
    hit = draw.permutation(count)[: round(case.level * count)]
    if classes:
        made[hit] = draw.randint(0, classes, len(hit)) if case.kind == "uniform" else (made[hit] + 1) % classes
    elif case.kind == "uniform":
        made[hit] += draw.randn(len(hit)) * target.std()
    else:
        made[hit] = target[draw.permutation(count)[: len(hit)]]
    return made
