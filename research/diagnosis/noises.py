"""Bad labels of a known share: six kinds of noise."""

import numpy as np

from research.diagnosis.tasks import Array

NUMBERS, CLASSES = ("exchanged", "added", "outliers"), ("symmetric", "pair", "one class")
LEVELS = {"choose": (0.1, 0.2, 0.3, 0.4, 0.48, 0.6, 0.8), "report": (0.25, 0.45, 0.7)}


def disturbed(kind: str, y: Array, level: float, classes: int, rng: np.random.Generator) -> tuple[Array, float]:
    """Labels of which a share is bad, and the noise rate in the words of `excessmtl.diagnose`."""
    known = np.flatnonzero(np.isfinite(y))
    hit = known[rng.random(len(known)) < level]
    labels = y.copy()
    if kind == "exchanged":
        labels[hit] = y[rng.permutation(hit)]
    elif kind == "added":
        labels[hit] += y[known].std() * rng.normal(size=len(hit))
    elif kind == "outliers":
        labels[hit] += y[known].std() * rng.choice([-1, 1], len(hit)) * rng.uniform(3, 6, len(hit))
    elif kind == "symmetric":
        labels[hit] = rng.integers(classes, size=len(hit))
    elif kind == "pair":
        labels[hit] = (y[hit] + 1) % classes
    else:  # the commonest class loses labels to the next one
        common = np.bincount(y[known].astype(np.int64)).argmax()
        own = hit[y[hit] == common]
        labels[own] = (common + 1) % classes
    if kind in NUMBERS:
        return labels, len(hit) / len(known)
    wrong = float((labels[known] != y[known]).mean())
    return labels, min(wrong * classes / (classes - 1), 1.0)
