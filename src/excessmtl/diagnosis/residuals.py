"""Label noise of a regression task, from the shape of its held-out residuals.

A bad label differs from the truth by an error as large as the spread of the target itself; the residuals of good labels
are as large as what the network has not learned. So the residuals are a mixture: a core of unknown width and tails,
and a broad part whose width is known,

    residual  ~  (1 - e) core  +  e (core + error),        variance of the error = variance of the clean target

with e the noise rate; e is then also the variance of the noise over that of the clean target. The core is a Student t
(light or heavy tails); its width and tails are those that fit best at each rate.

What residuals cannot tell: where the core is nearly as wide as the target, because the task is hard, because training
has just begun, or because *every* label has an error, both parts look alike. The interval is wide then.
"""

import math
from collections.abc import Sequence

import numpy as np

from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.levels import RATES, Level, level_of, weights_of

_WIDTHS = np.geomspace(0.01, 1.6, 32)
"""Of the core, over the standard deviation of the labels."""
_TAILS = (3.0, 6.0, 1e5)
"""Degrees of freedom of the core; the last is a Gaussian."""
_BINS = 50


def noise_level(task: HeldOut) -> Level:
    """The noise rate of a task."""
    return level_of(weights_of(likelihood(*distances(task))))


def distances(task: HeldOut) -> tuple[Array, int]:
    """[n] the squared length of each residual, every output in units of its labels' deviation; how many outputs."""
    residual = task.targets - task.predictions
    residual = residual - np.median(residual, axis=0)
    scale = task.targets.std(axis=0)
    used = scale > 0
    found: Array = ((residual[:, used] / scale[used]) ** 2).sum(1)
    return found, int(used.sum())


def likelihood(squares: Array, outputs: int) -> Array:
    """Over `RATES`, logarithms."""
    edges = np.geomspace(1e-5, max(float(squares.max()), 1e-6) * 1.001, _BINS + 1)
    bins = np.clip(np.searchsorted(edges, squares) - 1, 0, _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS).astype(np.float64)
    used = counts > 0
    centres = np.bincount(bins, weights=squares, minlength=_BINS)[used] / counts[used]
    found: Array = np.max([_likelihood(centres, counts[used], outputs, tails) for tails in _TAILS], axis=0)
    return found


def _likelihood(squares: Array, counts: Array, outputs: int, tails: float) -> Array:
    """Over `RATES`, logarithms, with the width that fits best."""
    core, broad = _parts(squares, outputs, tails, RATES)
    rates = np.clip(RATES, 1e-6, 1 - 1e-6)[:, None, None]
    table = np.log(np.maximum(rates * np.exp(broad) + (1 - rates) * np.exp(core), 1e-300)) @ counts
    return _between(table)


def _between(table: Array) -> Array:
    """The largest value of every row of [rates, widths], by a parabola through it and its neighbours.

    Without it, a core whose width is between two of the grid would be seen as noise.
    """
    best = np.clip(table.argmax(1), 1, table.shape[1] - 2)
    rows = np.arange(len(table))
    before, middle, after = (table[rows, best + step] for step in (-1, 0, 1))
    curvature = 2 * middle - before - after
    gain = np.where(curvature > 0, (after - before) ** 2 / (8 * np.where(curvature > 0, curvature, 1)), 0)
    found: Array = np.maximum(np.minimum(middle + gain, table.max(1) + gain), table.max(1))
    return found


def _parts(squares: Array, outputs: int, tails: float, rates: Array) -> tuple[Array, Array]:
    """Logarithms of the densities of good labels [widths, n] and of bad ones [rates, widths, n]."""
    core = _student(squares, _WIDTHS[:, None], tails, outputs)
    # In units of the labels' variance, which is that of the clean target times (1 + rate).
    variance = 1 / (1 + rates[:, None, None]) + _WIDTHS[:, None] ** 2 * tails / (tails - 2)
    return core, -0.5 * squares / variance - 0.5 * outputs * np.log(2 * np.pi * variance)


def _student(squares: Array, width: Array, tails: float, outputs: int) -> Array:
    """Logarithm of the density of a multivariate t."""
    constant = math.lgamma((tails + outputs) / 2) - math.lgamma(tails / 2) - outputs / 2 * math.log(tails * math.pi)
    found: Array = constant - outputs * np.log(width) - (tails + outputs) / 2 * np.log1p(squares / (tails * width**2))
    return found


def floors(task: HeldOut, rates: Sequence[float]) -> list[float]:
    """The squared error of a network that knows every clean target, averaged over the outputs, for each rate."""
    variance = task.targets.var(axis=0).mean()
    return [float(rate / (1 + rate) * variance) for rate in rates]


def bad_probability(squares: Array, outputs: int, rate: float) -> Array:
    """[n] the probability that a label is bad, by the width and tails of the core that fit best at this rate."""
    if rate <= 0:
        return np.zeros(len(squares))
    place = int(np.abs(RATES - rate).argmin())
    every = [_parts(squares, outputs, tails, RATES[place : place + 1]) for tails in _TAILS]
    sums = [np.logaddexp(np.log(rate) + broad, np.log1p(-min(rate, 1 - 1e-6)) + core) for core, broad in every]
    fits = np.stack([own[0].sum(-1) for own in sums])
    tails, width = np.unravel_index(int(fits.argmax()), fits.shape)
    found: Array = np.exp(np.log(rate) + every[tails][1][0, width] - sums[tails][0, width])
    return found
