"""Which wrong labels a class gets: any of the others (symmetric noise), or always the same one (pair flips).

Counted among the most confident predictions, where the network knows the true class and only labels are wrong:

    shares[k, j]  =  P(label j | true class k, label wrong)

Few counts look more alike than they are. They are smoothed by a Dirichlet prior around the uniform distribution, whose
strength is the one under which the counts are most likely: even counts end up uniform, pair flips stay what they are.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from excessmtl.diagnosis.inputs import Array, HeldOut

_CONFIDENT = 1 / 3
"""Of the samples are counted."""
_STRENGTHS = np.geomspace(0.05, 50, 13)


def shares(task: HeldOut) -> Array:
    """[classes, classes], zero on the diagonal: how the wrong labels of each class are divided among the others."""
    return _smoothed(_counts(task))


def _smoothed(counts: Array) -> Array:
    off = ~np.eye(len(counts), dtype=bool)
    wrong = counts[off].reshape(len(counts), -1)
    strength = max(_STRENGTHS, key=lambda strength: _likelihood(wrong, float(strength)))
    found = np.zeros_like(counts)
    smoothed = wrong + strength
    found[off] = (smoothed / smoothed.sum(1, keepdims=True)).ravel()
    return found


def wrong_probability(task: HeldOut, probabilities: Array, wrong: float) -> Array:
    """[n] the probability that a label is wrong.

    By Bayes' rule, from the probabilities [n, classes] of the true class and the share of wrong labels.
    """
    classes = len(probabilities[0])
    wrong = min(max(wrong, 1e-3), 1 - 1 / classes)  # also where no noise was found, some labels are less likely
    labels: NDArray[np.int64] = task.targets.astype(np.int64)
    given = wrong * shares(task)[:, labels].T
    given[np.arange(len(labels)), labels] = 1 - wrong
    joint = np.maximum(probabilities, 1e-12) * given
    found: Array = 1 - joint[np.arange(len(labels)), labels] / joint.sum(1)
    return found


def spread(task: HeldOut) -> float:
    """The entropy of a wrong label given the true class: 0 if it is always the same, log(K - 1) if it is any."""
    counts = _counts(task)
    own, weights = _smoothed(counts), counts.sum(1)
    entropy = -(own * np.log(np.maximum(own, 1e-12))).sum(1)
    return float(entropy @ weights / weights.sum())


def _counts(task: HeldOut) -> Array:
    """[predicted class, label] of the most confident samples."""
    classes = task.predictions.shape[1]
    two = np.partition(task.predictions, -2, axis=1)[:, -2:]
    order = np.argsort(two[:, 0] - two[:, 1], kind="stable")
    chosen = order[: max(1, round(_CONFIDENT * task.samples))]
    pairs = task.predictions[chosen].argmax(1) * classes + task.targets[chosen].astype(np.int64)
    counts: Array = np.bincount(pairs, minlength=classes**2).reshape(classes, classes).astype(np.float64)
    return counts


def _likelihood(wrong: Array, strength: float) -> float:
    """The logarithm of the probability of the counts [classes, classes - 1] under a prior of this strength."""
    total = strength * wrong.shape[1]
    by_class = math.lgamma(total) - _log_gamma(total + wrong.sum(1))
    return float((by_class + (_log_gamma(strength + wrong) - math.lgamma(strength)).sum(1)).sum())


def _log_gamma(values: Array) -> Array:
    found: Array = torch.lgamma(torch.from_numpy(values)).numpy()
    return found
