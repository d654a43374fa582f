"""Label noise of a classification task, from the levels at which the surest predictions of each class settle."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from excessmtl.diagnosis import confusions, temperature
from excessmtl.diagnosis.confidence_curve import Curve
from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.levels import (
    CAUTION,
    COPIED,
    HALF,
    RATES,
    Level,
    level_of,
    lower_end,
    upper_end,
    weights_of,
)
from excessmtl.diagnosis.skill import LEARNED

Model = tuple[float, Array]
"""How well it explains the labels, by Akaike's criterion, and the likelihood of every rate; logarithms."""
_COUNTS = 0.25
"""As so much of a sample each one counts: the shape of the curves is not exact, and hard samples come together."""
_OF_A_CLASS = 60
"""A class of so many labels has a rate of its own; the other classes share one."""
_GOT = np.linspace(0, 1, 6)
"""The levels of other samples, over those of random labels."""
_TAKEN_OFF = 0.02
"""From the cautious lower end: the readings are of the same samples, and no second witness."""
_KNOWN = 0.95
"""Of what good labels tell, predictions must know so much, less the cautious lower end of the rate: labels of hard
tasks look a little noisy to predictions that know little."""
_TIED = 0.2
"""Where so many samples share one confidence, the surest cannot be told from the rest."""


@dataclass(frozen=True)
class ClassRate:
    """The labels of one class."""

    label: float | str
    """The class by its number, or as the table has it."""
    labels: int
    """How many samples have this label."""
    wrong: float
    """The share of them that is wrong."""


class Fit:
    """The noise of one task, by three models of it.

    *Even*: every class has the same rate, and all other labels are as likely. *One class*: the labels of one class are
    bad, and no others. *By class*: each class has a rate of its own. They count by Akaike's criterion.
    """

    def __init__(self, task: HeldOut) -> None:
        self.task = task
        self.classes = task.predictions.shape[1]
        self.labels = task.targets.astype(np.int64)
        self.shares = np.bincount(self.labels, minlength=self.classes) / task.samples
        self.chance = 1 - 1 / self.classes

    def level(self) -> Level:
        """The noise rate."""
        if self.rated:
            models = [self._even(), *self._one_class(), self._by_class()]
            leads = np.array([lead for lead, _ in models])
            weights = weights_of(_COUNTS * leads) @ np.stack([weights_of(_COUNTS * own) for _, own in models])
        else:  # nothing says which of the labels that differ are bad: any rate up to all of them fits
            differing = float((self.task.predictions.argmax(1) != self.labels).mean())
            weights = weights_of(np.where(RATES * self.chance <= differing, 0.0, -np.inf))
        least = max(lower_end(weights, CAUTION) - _TAKEN_OFF, 0.0)
        return level_of(weights, least, upper_end(weights, CAUTION))

    @cached_property
    def _curves(self) -> dict[int, Curve]:
        """Of each class that has labels."""
        return {int(own): Curve(self._leads[:, own], self.labels == own) for own in np.flatnonzero(self.shares)}

    @cached_property
    def _leads(self) -> Array:
        return leads_of(self.task.predictions)

    @cached_property
    def _tables(self) -> dict[int, Array]:
        """Class -> [shares of other samples that have got its label, rates], logarithms."""
        got, lost = np.meshgrid(_GOT / self.classes, RATES * self.chance, indexing="ij")
        return {
            own: curve.likelihood(got.ravel(), lost.ravel()).reshape(got.shape) for own, curve in self._curves.items()
        }

    @property
    def _once(self) -> float:
        """The curves of two classes are one and the same, seen from both ends."""
        return 0.5 if self.classes == 2 else 1.0

    def _even(self) -> Model:
        curves = [curve.likelihood(RATES / self.classes, RATES * self.chance) for curve in self._curves.values()]
        likelihood = self._once * np.sum(curves, axis=0)
        return float(likelihood.max()) - 1, likelihood

    def _one_class(self) -> list[Model]:
        models = []
        without = {own: float(table[:, 0].max()) for own, table in self._tables.items()}
        for own, table in self._tables.items():
            lead = self._once * (table[0].max() + sum(without.values()) - without[own])
            # Before it lost labels, the class had more of them.
            had = np.minimum(self.shares[own] / np.maximum(1 - RATES * self.chance, 1e-9), 1)
            likelihood = np.interp(RATES, had * RATES, table[0], right=-np.inf)
            models.append((float(lead) - 2, likelihood))
        return models

    @cached_property
    def _groups(self) -> list[tuple[list[int], Array]]:
        """Classes that share a rate, and its likelihood: those with few labels share one."""
        few = self.shares * self.task.samples < _OF_A_CLASS
        groups = [[own] for own in self._tables if not few[own]] + [[own for own in self._tables if few[own]]]
        return [(group, np.sum([self._tables[own].max(0) for own in group], axis=0)) for group in groups if group]

    @cached_property
    def _lost(self) -> Array:
        """[classes] the share of its labels that each class has lost to the others."""
        lost = np.zeros(self.classes)
        for group, likelihood in self._groups:
            lost[group] = self.chance * float(weights_of(_COUNTS * likelihood) @ RATES)
        return lost

    @cached_property
    def _had(self) -> Array:
        """[classes] the shares of the true classes: before they lost labels, they had more of them."""
        moved = np.diag(1 - self._lost) + self._lost[:, None] * confusions.shares(self.task)
        had = np.maximum(np.linalg.lstsq(moved.T, self.shares, rcond=None)[0], 1e-6)
        found: Array = had / had.sum()
        return found

    def _by_class(self) -> Model:
        sizes = [float(self._had[group].sum()) for group, _ in self._groups]
        likelihood = self._groups[0][1]
        for number, (_, own) in enumerate(self._groups[1:], 1):
            likelihood = _of_the_mean(likelihood, sum(sizes[:number]), own, sizes[number])
        return float(self._once * likelihood.max()) - len(sizes), likelihood

    def class_rates(self, rate: float) -> tuple[ClassRate, ...]:
        """How many labels of each class are wrong; together as many as the noise rate says."""
        wrong = rate * (1 - 1 / self.classes)
        probabilities = temperature.calibrated(self.task)
        bad = confusions.wrong_probability(self.task, probabilities, wrong)
        labels = self.task.targets.astype(np.int64)
        counts, sums = np.bincount(labels), np.bincount(labels, weights=bad)
        shares = np.minimum(sums / np.maximum(counts, 1) * (wrong * len(labels) / max(sums.sum(), 1e-12)), 1.0)
        return tuple(ClassRate(int(own), int(counts[own]), float(shares[own])) for own in np.flatnonzero(counts))

    @property
    def rated(self) -> bool:
        """Not where each prediction is a class alone, the label of another sample: a full tree, one neighbour."""
        return self._tied <= COPIED

    @property
    def graded(self) -> bool:
        """Whether the predictions say which of them are the surest."""
        return self._tied < _TIED

    @cached_property
    def _tied(self) -> float:
        """The largest share of the samples that have one and the same confidence."""
        margins = self._leads.max(1)
        return float(np.unique(margins, return_counts=True)[1].max() / self.task.samples)

    def learned(self, rate: float) -> float:
        """The share of what good labels tell that the predictions know, counted in errors."""
        rarest = 1 - np.bincount(self.task.targets.astype(np.int64)).max() / self.task.samples
        errors = float((self.task.predictions.argmax(1) != self.task.targets).mean())
        skill = 1 - errors / max(rarest, 1e-9)
        return float(skill / max(1 - rate, 1e-9)) if skill >= LEARNED else 0.0

    def enough(self, least: float) -> float:
        """The share that must be known to tell a hard task from a noisy one, by the cautious lower end of its rate."""
        return max(HALF, _KNOWN - least)

    @cached_property
    def _spread(self) -> float:
        return confusions.spread(self.task)

    def floor(self, rate: float) -> float:
        """The cross-entropy, in nats, of a network that knows every true class and its rate of bad labels."""
        if rate <= 0:
            return 0.0
        share = rate * self.chance / max(float(self._had @ self._lost), 1e-9)
        wrong = np.clip(share * self._lost, 1e-12, self.chance)
        return float(self._had @ (wrong * (self._spread - np.log(wrong)) - (1 - wrong) * np.log1p(-wrong)))


def leads_of(predictions: Array) -> Array:
    """[n, classes] by how much each class leads the likeliest other one."""
    two = np.partition(predictions, -2, axis=1)[:, -2:]
    other = np.where(predictions == two[:, 1:], two[:, :1], two[:, 1:])
    leads: Array = np.round(predictions - other, 9)
    return leads


def _of_the_mean(first: Array, first_size: float, second: Array, second_size: float) -> Array:
    """The likelihood of the mean rate of two groups of samples, over `RATES`: that of the likeliest two rates."""
    left = (RATES[:, None] * (first_size + second_size) - RATES * second_size) / first_size
    possible = (left > -1e-9) & (left < 1 + 1e-9)
    likelihood: Array = np.where(possible, np.interp(left, RATES, first) + second, -np.inf).max(1)
    return likelihood
