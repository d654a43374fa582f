"""Held-out predictions whose label noise is known."""

import numpy as np


def classes(rate, samples=1000, number=10, ease=3.5, sharpness=3.0, kind="symmetric", seed=0):
    """Logits [samples, number] and labels; `ease`: by how much the true class leads, in units of the logits' noise."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(number, size=samples)
    logits = rng.normal(size=(samples, number))
    logits[np.arange(samples), truth] += ease
    if kind == "pair":  # the network has learned that the next class is likely as well
        logits[np.arange(samples), (truth + 1) % number] += ease / 2
    hit = rng.random(samples) < rate
    wrong = rng.integers(number, size=samples) if kind == "symmetric" else (truth + 1) % number
    return sharpness * logits, np.where(hit, wrong, truth)


def numbers(rate, samples=1000, width=0.3, outputs=1, kind="added", seed=0):
    """Predictions and labels [samples, outputs]; `width`: error of the predictions over the target's deviation."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(samples, outputs))
    predictions = truth + width * rng.standard_t(6, size=truth.shape) * 0.8
    hit = rng.random((samples, 1)) < rate
    error = rng.normal(size=truth.shape)
    if kind == "outliers":
        error = np.sign(error) * rng.uniform(3, 6, size=truth.shape)
    return 5 * predictions + 2, 5 * (truth + hit * error) + 2
