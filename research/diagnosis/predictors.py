"""Predictions of usual models for samples that they were not trained on."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from research.diagnosis.tasks import Array

FOLDS = 3
_NETWORK = {"hidden_layer_sizes": (64,), "learning_rate_init": 3e-3, "early_stopping": True, "max_iter": 150}
_FOREST = {"n_estimators": 50, "max_features": 0.33}

Make = Callable[[int], Any]
PREDICTORS: dict[str, tuple[Make, Make]] = {
    "network": (
        lambda seed: MLPRegressor(random_state=seed, **_NETWORK),
        lambda seed: MLPClassifier(random_state=seed, **_NETWORK),
    ),
    "forest": (
        lambda seed: RandomForestRegressor(random_state=seed, **_FOREST),
        lambda seed: RandomForestClassifier(random_state=seed, **_FOREST),
    ),
    "boosting": (
        lambda seed: HistGradientBoostingRegressor(random_state=seed, max_iter=60),
        lambda seed: HistGradientBoostingClassifier(random_state=seed, max_iter=25),
    ),
    "tree": (
        lambda seed: DecisionTreeRegressor(random_state=seed),
        lambda seed: DecisionTreeClassifier(random_state=seed),
    ),
    "5-NN": (lambda _: KNeighborsRegressor(), lambda _: KNeighborsClassifier()),
    "linear": (lambda _: Ridge(), lambda _: LogisticRegression(max_iter=300)),
}
"""Name -> how a regression and a classification are made from a seed, as their users would."""


def cross_fitted(name: str, kind: str, x: Array, y: Array, seed: int) -> Array:
    """Of one task: numbers [n], or probabilities [n, classes], NaN where there is no label."""
    known = np.isfinite(y)
    classes = 0 if kind == "regression" else int(y[known].max()) + 1
    predictions = np.full((len(y), max(classes, 1)), np.nan)
    rows = np.flatnonzero(known)
    for train, test in KFold(FOLDS, shuffle=True, random_state=seed).split(rows):
        inner, outer = rows[train], rows[test]
        model = make_pipeline(StandardScaler(), PREDICTORS[name][bool(classes)](seed))
        if classes:
            model.fit(x[inner], y[inner].astype(np.int64))
            shares = np.zeros((len(outer), classes))
            shares[:, model.classes_] = model.predict_proba(x[outer])
            predictions[outer] = shares
        else:
            centre, width = y[inner].mean(), max(y[inner].std(), 1e-12)
            model.fit(x[inner], (y[inner] - centre) / width)
            predictions[outer] = model.predict(x[outer])[:, None] * width + centre
    return predictions if classes else predictions[:, 0]
