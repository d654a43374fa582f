"""Small worlds in which labels come from a known network, one per regime a weighting rule has to survive.

A random two-layer teacher maps inputs to features that all tasks share; each task reads them in its own way.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from excessmtl.lab.data.base import standardise

HELD_OUT = 2_000
"""Rows to validate on after those to train on, and as many to test on after them."""
_INPUTS, _HIDDEN, _FEATURES = 16, 48, 12
_CLASSES, _NUMBER = 5, 0
_OWN = 0.7
"""How much of a task's way to read the features is its own; the rest it has in common with the other tasks."""


@dataclass(frozen=True)
class Regime:
    """One world."""

    classes: tuple[int, ...]
    """Of every task; 0: the target is a number."""
    training: int
    """Rows to train on."""
    units: tuple[float, ...] | None = None
    """Standard deviation of each target that is a number; None: one."""
    waves: tuple[float, ...] | None = None
    """How fast each target oscillates as the teacher's features change: the higher, the harder; None: not at all."""


REGIMES = {
    # A trunk too narrow for its four tasks; one that memorises the rows; 24 tasks; six, most of them noisy.
    "narrow": Regime((_NUMBER,) * 4, 3_000),
    "memorise": Regime((_CLASSES,) * 3, 400),
    "many": Regime((_NUMBER,) * 24, 1_500),
    "majority": Regime((_NUMBER,) * 6, 2_000),
    # The last two tasks are hard; classes and numbers in different units.
    "hard": Regime((_NUMBER,) * 5, 3_000, waves=(0.5, 0.5, 0.5, 1.5, 2.5)),
    "mixed": Regime((_CLASSES, _NUMBER, _CLASSES, _NUMBER, _NUMBER), 2_000, units=(1.0, 8.0, 1.0, 0.2, 1.0)),
}


def world(regime: Regime, seed: int) -> tuple[Tensor, list[Tensor]]:
    """Inputs and the right targets of every task: rows to train, to validate and to test on, one after the other."""
    generator = Generator().manual_seed(seed * 7_919 + 17)
    first = torch.randn(_INPUTS, _HIDDEN, generator=generator) * (2 / _INPUTS) ** 0.5
    second = torch.randn(_HIDDEN, _FEATURES, generator=generator) * (2 / _HIDDEN) ** 0.5
    common = {size: torch.randn(_FEATURES, size, generator=generator) for size in (1, _CLASSES)}
    inputs = torch.randn(regime.training + 2 * HELD_OUT, _INPUTS, generator=generator)
    features = torch.tanh((inputs @ first).relu() @ second)
    targets = []
    for position, classes in enumerate(regime.classes):
        reading = torch.randn(_FEATURES, classes or 1, generator=generator)
        values = features @ (_OWN * reading + (1 - _OWN) * common[classes or 1])
        if regime.waves is not None:
            values = torch.sin(regime.waves[position] * values)
        if classes:
            targets.append(values.argmax(1))
        else:
            unit = 1.0 if regime.units is None else regime.units[position]
            _, scaled = standardise(values[: regime.training], values)
            targets.append(unit * scaled[:, 0])
    return inputs, targets
