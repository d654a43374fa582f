"""Label noise of a regression task, from held-out residuals at each level of the prediction.

The labels of good samples lie around the prediction, as far off as the model is there: the *core*. Its centre and its
width to either side are fitted at each level of the prediction, so that errors that grow with the target, skewed
targets and predictions that shrink toward the mean are no noise. A bad label is far off in one of three ways:

    exchanged   the label of another sample: independent of the prediction
    added       an error as wide as the clean target
    outlier     two to seven times as far off as the clean target is wide, at any distance alike

    P(residual | level)  =  (1 - e) core(residual | level)  +  e bad(residual | level)

with the same noise rate e, the share of bad labels, at all levels and on both sides. That is the second witness: hard
regions, discontinuities and rare large events are found at some levels or on one side only, and look like exchanged
labels or outliers there. So the rate of these two is that of the half of the levels that shows the least noise, and the
cautious lower end is that of this half or of the one level that shows the least. Errors that are wide for some samples,
because of inputs that the prediction does not show, look like bad labels too: one shape of the core allows for these.

What residuals cannot tell: where the core is nearly as wide as the target, because the task is hard, because training
has just begun, or because *every* label has an error, both parts look alike. The interval is wide then.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.levels import (
    CAUTION,
    COPIED,
    HALF,
    RATES,
    TAIL,
    Level,
    lower_end,
    of_copies,
    upper_end,
    weights_of,
)
from excessmtl.diagnosis.skill import LEARNED, skill_of

_LEVELS, _SAMPLES_OF_A_LEVEL = 4, 50
"""At most so many levels of the prediction, each with at least so many samples."""
_BINS = 20
"""Of the distance from the core's centre, on each side."""
_NEAREST = 0.1
"""The bins reach so far at least: the first one of exact predictions is no narrower than a core can fill."""
_WIDTHS = np.geomspace(0.005, 2.5, 36)
"""Of the core on one side, over the standard deviation of the labels."""
_UNEVEN, _WIDEST = 5.0, 0.5
"""Where the core is wider for some samples: so many times, and at most so much of the labels' standard deviation."""
_FROM, _TO = 2.0, 7.0
"""The distances of outliers, over the standard deviation of the clean target. That of added errors is 1."""
_KINDS = _EXCHANGED, _ADDED, _OUTLIERS = 0, 1, 2
_QUARTER = 0.25
"""The weight below the cautious lower end of a single level."""
_EVERY_LABEL = 0.52
"""An error in every label leaves one half of the variance to be known: what is known must be more to exclude it."""
_COUNTS = 0.5
"""As so much of a sample each one counts in an interval: samples that are hard for one reason are not independent."""
_MODEL_ERROR = 0.05
"""By so much an interval is longer at either end than the samples make it: no model of the noise is exact."""
_LEAST_SKILL = 0.1
"""Predictions that explain less of the labels' variance may fit any share of bad labels."""
_PAIRS = 20_000
"""Residuals of exchanged labels are drawn until there are so many, or one for each sample."""


def _gauss(x: Array) -> Array:
    tail: Array = torch.erfc(torch.from_numpy(np.asarray(x / math.sqrt(2)))).numpy()
    return tail


def _student(x: Array) -> Array:
    """With three degrees of freedom."""
    scaled = x / math.sqrt(3)
    tail: Array = 1 - 2 / math.pi * (scaled / (1 + scaled**2) + np.arctan(scaled))
    return tail


def _uneven(edges: Array) -> Array:
    """One half of the samples has a wider core, for reasons that the prediction does not show."""
    wide = np.maximum(_WIDTHS, np.minimum(_UNEVEN * _WIDTHS, _WIDEST))
    tail: Array = (_gauss(edges / _WIDTHS[:, None]) + _gauss(edges / wide[:, None])) / 2
    return tail


_TAILS: tuple[Callable[[Array], Array], ...] = (_gauss, lambda x: 2 / (1 + np.exp(np.minimum(1.7 * x, 700))), _student)
"""Shapes of an even core, from light to heavy: the share of it that is further off than so many widths."""


class Bins:
    """Residuals at one level of the prediction, in bins of their distance from the core's centre on either side."""

    def __init__(self, rows: NDArray[np.int64], predictions: Array, targets: Array) -> None:
        """`predictions`: of the level, `rows`; `targets`: of all samples. Both in units of the labels' deviation."""
        residual = targets[rows] - predictions
        centre = _centre(residual)
        again = np.tile(predictions, max(1, _PAIRS // len(rows)))
        exchanged = np.random.default_rng(0).choice(targets, len(again)) - again - centre
        residual = residual - centre
        far = max(float(np.abs(residual).max()), _NEAREST)
        self.edges = np.concatenate([[0.0], np.geomspace(far / 2000, far * (1 + 1e-9), _BINS - 1), [1e9]])
        self.rows, self.numbers = rows, self._number(residual)
        self.counts, drawn = (
            np.bincount(own, minlength=2 * _BINS).reshape(2, _BINS).astype(np.float64)
            for own in (self.numbers, self._number(exchanged))
        )
        self.exchanged = (drawn + 0.5) / (drawn + 0.5).sum()
        even = [tail(self.edges / _WIDTHS[:, None]) for tail in _TAILS]
        ends = np.stack([*even, _uneven(self.edges)])
        self.core = ends[..., :-1] - ends[..., 1:]
        """[shapes, widths, bins]: how a core is divided among the bins of a side."""

    def _number(self, residual: Array) -> NDArray[np.int64]:
        bins = np.searchsorted(self.edges, np.abs(residual), "right") - 1
        numbers: NDArray[np.int64] = bins + _BINS * (residual >= 0)
        return numbers

    def parts(self, kind: int, rates: Array) -> tuple[Array, Array]:
        """[sides, rates, shapes, widths, bins]: shares of all samples, good ones and bad ones."""
        rate = rates[:, None, None, None]
        if kind == _EXCHANGED:
            bad = rate * self.exchanged[:, None, None, None]
        else:
            side = rate * (self._added(rate) if kind == _ADDED else self._outliers(rate))
            bad = np.stack([side, side])
        left = np.clip(self.counts[0].sum() / self.counts.sum() - bad[0].sum(-1, keepdims=True), 0, 1 - rate)
        return np.stack([left * self.core, (1 - rate - left) * self.core]), bad

    def _added(self, rate: Array) -> Array:
        """[rates, 1, widths, bins] of a side: the core with an error; the labels' variance, 1, is that of both."""
        ends = _gauss(self.edges / np.sqrt(1 / (1 + rate) + np.square(_WIDTHS)[:, None])) / 2
        return ends[..., :-1] - ends[..., 1:]

    def _outliers(self, rate: Array) -> Array:
        """[rates, 1, 1, bins] of a side: as many at every distance."""
        square = (_TO**3 - _FROM**3) / (3 * (_TO - _FROM))
        width = 1 / np.sqrt(1 + rate * square)
        ends = np.clip((self.edges / width - _FROM) / (_TO - _FROM), 0, 1) / 2
        found: Array = np.maximum(np.diff(ends), 1e-4)
        return found

    def likelihood(self, good: Array, bad: Array) -> Array:
        """[sides, rates, shapes, widths] of the residuals, logarithms."""
        used = self.counts > 0
        sides = [
            np.log(good[side][..., used[side]] + bad[side][..., used[side]] + 1e-12) @ self.counts[side, used[side]]
            for side in range(2)
        ]
        return np.stack(sides)

    def leads(self, kind: int, shape: int, rate: float) -> Array:
        """[n] by how much a residual is likelier of a bad label than of a good one; logarithms."""
        good, bad = self.parts(kind, np.array([rate]))
        widths = [int(own[0, shape].argmax()) for own in self.likelihood(good, bad)]
        bad = np.broadcast_to(bad, good.shape)
        odds = [
            np.log((bad[side, 0, shape, width] + 1e-12) / (good[side, 0, shape, width] + 1e-12))
            for side, width in enumerate(widths)
        ]
        found: Array = np.maximum.accumulate(odds, axis=1).ravel()[self.numbers]
        return found


def _unrounded(labels: Array) -> Array:
    """Labels that repeat (counts, marks, zeros) stand for a range, halfway to their neighbours: drawn anew from this.

    A label that is exchanged for the same number is no bad one, and would look more exact than any core.
    """
    values, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    gaps, rng = np.diff(values), np.random.default_rng(0)
    below, above = np.append(gaps[:1], gaps)[place] / 2, np.append(gaps, gaps[-1:])[place] / 2
    within = rng.uniform(-below, above) + _WIDTHS[0] * rng.normal(size=len(labels))
    drawn: Array = labels + within * (counts > 1)[place]
    return drawn


def _levels(predictions: Array, targets: Array) -> list[Bins]:
    """Of one output, from low to high predictions."""
    order = np.argsort(predictions, kind="stable")
    levels = int(np.clip(len(targets) // _SAMPLES_OF_A_LEVEL, 1, _LEVELS))
    return [Bins(rows, predictions[rows], targets) for rows in np.array_split(order, levels)]


def _centre(residual: Array) -> float:
    """Where most of them are: the mean around the shortest interval that holds half of them.

    Bad labels on one side, where low and high predictions have them, do not move it.
    """
    ordered, half = np.sort(residual), len(residual) // 2 + 1
    widths = ordered[half - 1 :] - ordered[: len(ordered) - half + 1]
    start = int(widths.argmin())
    middle, width = float(ordered[start : start + half].mean()), float(widths[start])
    return float(ordered[np.abs(ordered - middle) <= width + 1e-9].mean())


def _near(predictions: Array, labels: Array) -> NDArray[np.bool_]:
    """[n] whether a prediction is the label of some sample, but for rounding."""
    ordered = np.sort(labels)
    place = np.searchsorted(ordered, predictions).clip(1, len(ordered) - 1)
    distance = np.minimum(np.abs(predictions - ordered[place - 1]), np.abs(predictions - ordered[place]))
    near: NDArray[np.bool_] = distance < 1e-6 * max(float(labels.std()), 1e-30)
    return near


def _explained(pairs: Sequence[tuple[Array, ...]], weights: Array) -> float:
    """The squared correlation of predictions and labels, averaged over the outputs."""
    known = [np.cov(np.stack(pair), aweights=weights + 1e-9) for pair in pairs]
    return float(np.mean([own[0, 1] ** 2 / max(own[0, 0] * own[1, 1], 1e-300) for own in known]))


def _weights(table: Array, quiet: NDArray[np.int64] | None = None) -> Array:
    """[rates] every kind of noise counts by how well it explains the residuals of all levels.

    `quiet`: the levels that the rates of exchanged labels and of outliers are taken from; None: all.
    """
    every = table.sum(1).max(2)
    likelihood = every if quiet is None else table[:, quiet].sum(1).max(2)
    likelihood[_ADDED] = every[_ADDED]  # overlaps with the core: a quiet level is quiet by chance
    weights: Array = weights_of(every.max(1)) @ np.stack([weights_of(own) for own in likelihood])
    return weights


class Fit:
    """The mixture of one task."""

    rated = True

    def __init__(self, task: HeldOut) -> None:
        self.task = task
        varied = task.targets.std(0) > 0
        self.pairs = list(zip(task.predictions.T[varied], task.targets.T[varied], strict=True))
        """The predictions and the labels of every output that is not always the same."""
        self.outputs = [_levels(own / labels.std(), _unrounded(labels / labels.std())) for own, labels in self.pairs]
        tables = [
            [[bins.likelihood(*bins.parts(kind, RATES)).max(-1).sum(0) for bins in levels] for kind in _KINDS]
            for levels in self.outputs
        ]
        self.table = np.mean(tables, axis=0)
        """[kinds, levels, rates, shapes]: logarithms, averaged over outputs, which are not independent."""

    def level(self) -> Level:
        """The noise rate."""
        each = [_weights(self.table[:, [number]]) for number in range(self.table.shape[1])]
        quiet = np.argsort([weights @ RATES for weights in each])[: (len(each) + 1) // 2]
        half = lower_end(_weights(_COUNTS * self.table[:, quiet]), 2 * CAUTION)
        lowest = min(lower_end(weights, _QUARTER) for weights in each)
        # One level is no second witness, and numbers of two or three values look exchanged where the task is hard.
        least = min(half, lowest) if len(each) > 1 and self._values >= _LEVELS else 0.0
        most = upper_end(_weights(_COUNTS * self.table), CAUTION)
        weights = _weights(_COUNTS * self.table, quiet)
        low = max(lower_end(weights, TAIL) - _MODEL_ERROR, 0.0)
        high, from_0 = (min(upper_end(weights, tail) + _MODEL_ERROR, 1.0) for tail in (TAIL, 2 * TAIL))
        rate = float(np.clip(_weights(self.table, quiet) @ RATES, low, high))
        level = Level(rate, low, high, least, most, max(from_0, rate))
        learned, weak = self.learned(float(_weights(self.table) @ RATES)), self._skill < _LEAST_SKILL
        if learned < _EVERY_LABEL or (weak and not self.copied):  # a copy is too noisy to have skill
            return Level(rate, 0.0, 1.0, least=0.0, most=1.0, high_from_0=1.0)
        return of_copies(level) if self.copied else level

    @property
    def _values(self) -> int:
        """How many different labels there are."""
        return max((len(np.unique(labels)) for _, labels in self.pairs), default=0)

    @property
    def copied(self) -> bool:
        """Whether each prediction is the label of another sample, as noisy as this one: a full tree, one neighbour."""
        return bool(np.mean([_near(*pair).mean() for pair in self.pairs]) > COPIED)

    @property
    def graded(self) -> bool:
        """Whether there is more to a prediction than one label of another sample."""
        return not self.copied

    def learned(self, rate: float) -> float:
        """The share of the variance of good labels that the predictions know, whatever their scale.

        That of the ranks counts where it is higher: of skewed targets, a few large ones are most of the variance. Not
        so where hardly anything is explained: there the large ones are events that the predictions do not know.
        """
        good = 1 - self.bad_probability(rate)
        share = _explained(self.pairs, good)
        if self._skill < LEARNED:
            return share
        ranks = [
            tuple(part.argsort(kind="stable").argsort().astype(np.float64) for part in pair) for pair in self.pairs
        ]
        return max(share, _explained(ranks, good))

    @cached_property
    def _skill(self) -> float:
        skill = skill_of(self.task)
        return 0.0 if skill is None else skill.share

    def enough(self, least: float) -> float:
        """The share that must be known to tell a hard task from a noisy one."""
        return HALF

    def bad_probability(self, rate: float) -> Array:
        """[n] the probability that a label is bad, by the core and the kind of noise that fit best at this rate."""
        if rate <= 0:
            return np.zeros(self.task.samples)
        rate = min(rate, 0.98)
        table = self.table.sum(1)[:, int(np.abs(RATES - rate).argmin())]
        kind, shape = (int(place) for place in np.unravel_index(int(table.argmax()), table.shape))
        before = math.log(rate / (1 - rate))
        odds = np.full(self.task.samples, before)
        for bins in (bins for levels in self.outputs for bins in levels):
            odds[bins.rows] += bins.leads(kind, shape, rate) - before
        found: Array = 1 / (1 + np.exp(-odds))
        return found

    def class_rates(self, rate: float) -> None:
        """There are no classes."""

    def floor(self, rate: float) -> float:
        """The part of the squared error that bad labels cause: the rest is the mean square over the good ones."""
        squares = np.square(self.task.targets - self.task.predictions).mean(1)
        good = 1 - self.bad_probability(rate)
        return max(float(squares.mean() - good @ squares / max(good.sum(), 1e-9)), 0.0)
