"""Predictions of usual models for samples that they were not trained on."""

import numpy as np
from sklearn import ensemble, linear_model, neighbors, neural_network, tree
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from research.diagnosis.tasks import Array

FOLDS = 3
_NETWORK = {"hidden_layer_sizes": (64,), "learning_rate_init": 3e-3, "early_stopping": True, "max_iter": 150}
_FOREST = {"n_estimators": 50, "max_features": 0.33}

PREDICTORS = {
    "network": (neural_network.MLPRegressor(**_NETWORK), neural_network.MLPClassifier(**_NETWORK)),
    "forest": (ensemble.RandomForestRegressor(**_FOREST), ensemble.RandomForestClassifier(**_FOREST)),
    "boosting": (
        ensemble.HistGradientBoostingRegressor(max_iter=60),
        ensemble.HistGradientBoostingClassifier(max_iter=25),
    ),
    "tree": (tree.DecisionTreeRegressor(), tree.DecisionTreeClassifier()),
    "5-NN": (neighbors.KNeighborsRegressor(), neighbors.KNeighborsClassifier()),
    "linear": (linear_model.Ridge(), linear_model.LogisticRegression(max_iter=300)),
}
"""Name -> a regression and a classification, as their users would make them."""


def cross_fitted(name: str, kind: str, x: Array, y: Array, seed: int) -> Array:
    """Of one task: numbers [n], or probabilities [n, classes], NaN where there is no label."""
    known = np.isfinite(y)
    classes = 0 if kind == "regression" else int(y[known].max()) + 1
    predictions = np.full((len(y), max(classes, 1)), np.nan)
    rows = np.flatnonzero(known)
    for train, test in KFold(FOLDS, shuffle=True, random_state=seed).split(rows):
        inner, outer = rows[train], rows[test]
        own = clone(PREDICTORS[name][bool(classes)])
        if "random_state" in own.get_params():
            own.set_params(random_state=seed)
        model = make_pipeline(StandardScaler(), own)
        if classes:
            model.fit(x[inner], y[inner].astype(np.int64))
            predictions[outer] = 0.0
            predictions[outer[:, None], model.classes_] = model.predict_proba(x[outer])
        else:
            centre, width = y[inner].mean(), max(y[inner].std(), 1e-12)
            model.fit(x[inner], (y[inner] - centre) / width)
            predictions[outer] = model.predict(x[outer])[:, None] * width + centre
    return predictions if classes else predictions[:, 0]
