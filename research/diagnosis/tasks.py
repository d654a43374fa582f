"""The data of the study, with clean labels, in two parts: rules are chosen on one and reported on the other."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.io import loadmat
from sklearn import datasets
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

Array = NDArray[Any]
Random = np.random.Generator
Rows = tuple[Array, Array]  # inputs and labels
_ROWS = 1500
_SYMBOLS, _PARTS = 1024, 20


@dataclass(frozen=True)
class Task:
    """Inputs [n, d] and clean labels [n, tasks] of one or several tasks, NaN where there is none."""

    group: str
    """What is reported together."""
    kind: str
    """"classification", "binary" or "regression", of all its tasks."""
    x: Array
    y: Array


def _formula(inputs: int, target: Callable[[Array, Random], Array], rng: Random, data: Path) -> Rows:
    """So many inputs from -1 to 1, and a target from these [inputs, n]."""
    x = rng.uniform(-1, 1, size=(_ROWS, inputs))
    return x, target(x.T, rng)


def _noise(rng: Random) -> Array:
    return rng.normal(size=_ROWS)


def _hit(rng: Random, share: float | Array) -> Array:
    return rng.random(_ROWS) < share


def _smooth(x: Array) -> Array:
    return np.asarray(np.sin(3 * x[0]) + x[1] ** 2 + x[2])


def _bursts(x: Array, rng: Random) -> Array:
    return np.asarray(x[0] + 0.1 * _noise(rng) + rng.exponential(5, _ROWS) * _hit(rng, 0.05))


def _floods(x: Array, rng: Random) -> Array:
    """Large events are more frequent for some inputs."""
    flood = _hit(rng, 0.01 + 0.05 * (x[3] > 0))
    level = np.cos(2 * x[0]) + x[1] + 0.1 * _noise(rng)
    return np.asarray(level + flood * rng.lognormal(1.5, 0.5, _ROWS))


def _seasons(x: Array, rng: Random) -> Array:
    return np.asarray(x[0] + np.sin(2 * x[1]) + (0.1 + 0.4 * np.sin(6 * x[2]) ** 2) * _noise(rng))


def _funnel(x: Array, rng: Random) -> Array:
    level = np.exp(x[0] + 0.5 * x[1])
    return np.asarray(level + 0.15 * level * rng.standard_t(5, _ROWS))


def _rain(x: Array, rng: Random) -> Array:
    """Most days are dry, and the sum of the others is to one decimal."""
    return np.asarray(np.round(np.maximum(3 * x[0] + 2 * x[1] * x[2] + 0.5 * _noise(rng) - 0.5, 0), 1))


_FORMULAS: dict[str, dict[str, tuple[str, int, Callable[[Array, Random], Array]]]] = {
    "choose": {
        "step": ("steps", 3, lambda x, rng: np.where(x[0] > 0.2, 1.0, 0.0) + 0.05 * _noise(rng)),
        "checker": ("steps", 3, lambda x, rng: np.sign(x[0] * x[1]) + 2 * np.sign(x[2] - 0.3) + _noise(rng) / 20),
        "prices": ("skewed", 5, lambda x, rng: np.exp(_smooth(x) + 0.3 * _noise(rng))),
        "incomes": ("skewed", 5, lambda x, rng: np.exp(1.5 * x[0] + np.abs(x[1]) + 0.5 * _noise(rng))),
        "events": ("rare large events", 5, lambda x, rng: _smooth(x) + 0.2 * _noise(rng) + 10 * _hit(rng, 0.03)),
        "bursts": ("rare large events", 5, _bursts),
        "proportional": ("uneven errors", 5, lambda x, rng: 2 * _smooth(x) * (1 + 0.3 * _noise(rng))),
        "relative": ("uneven errors", 5, lambda x, rng: (3 * x[0] + x[1]) * (1 + 0.4 * _noise(rng))),
        "uneven": ("uneven errors", 5, lambda x, rng: _smooth(x) + np.exp(1.5 * x[3] - 2) * _noise(rng)),
        "fans": ("uneven errors", 5, lambda x, rng: 2 * x[0] + np.where(x[1] > 0, 0.6, 0.1) * _noise(rng)),
        "marks": ("repeated numbers", 5, lambda x, rng: np.clip(np.round(3 + _smooth(x) + 0.3 * _noise(rng)), 1, 5)),
        "visits": ("repeated numbers", 5, lambda x, rng: rng.poisson(np.exp(1.5 * x[0] + np.abs(x[1])))),
        "hours": ("repeated numbers", 5, lambda x, rng: np.maximum(_smooth(x) - 1 + 0.2 * _noise(rng), 0)),
    },
    "report": {
        "terraces": ("steps", 4, lambda x, rng: np.floor(2.5 * x[0] + 1.5 * x[1] * x[2]) + 0.1 * _noise(rng)),
        "claims": ("skewed", 5, lambda x, rng: rng.gamma(4, np.exp(1.2 * x[0] - x[1] * x[2]))),
        "floods": ("rare large events", 5, _floods),
        "seasons": ("uneven errors", 5, _seasons),
        "funnel": ("uneven errors", 5, _funnel),
        "stages": ("repeated numbers", 4, lambda x, rng: np.digitize(2 * x[0] - x[1] + x[2] ** 2, [-1.5, 0, 0.5, 2])),
        "rain": ("repeated numbers", 5, _rain),
    },
}
"""Regressions of both parts: the group, how many inputs, and the target."""


def _rare(share: float, lead: float, rng: Random, data: Path) -> Rows:
    y = rng.random(2 * _ROWS) < share
    return rng.normal(size=(2 * _ROWS, 6)) + lead * y[:, None] * np.array([1, 1, 0.5, 0, 0, 0]), y


def _rare_shell(rng: Random, data: Path) -> Rows:
    """Some 6 % of the samples are far out, in any direction."""
    x = rng.normal(size=(2 * _ROWS, 4))
    return x, np.linalg.norm(x, axis=1) + 0.2 * rng.normal(size=len(x)) > 3.0


def _centres(shares: list[float], columns: int, apart: float, rng: Random, data: Path) -> Rows:
    """Classes of these shares around points that are drawn once."""
    y = rng.choice(len(shares), p=shares, size=_ROWS)
    centres = apart * np.random.default_rng(0).normal(size=(len(shares), columns))
    return rng.normal(size=(_ROWS, columns)) + centres[y], y


def _drawn(x: Array, y: Array, rng: Random, most: int = _ROWS) -> Rows:
    rows = rng.permutation(len(x))[:most]
    return x[rows], y[rows]


def _bundled(name: str, rng: Random, data: Path) -> Rows:
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return _drawn(x, y, rng)


def _table(name: str, targets: slice, rng: Random, data: Path) -> Rows:
    if name == "sarcos":
        every = loadmat(data / "sarcos_inv_test.mat")["sarcos_inv_test"]
    elif name == "school":
        every = pd.read_csv(data / "school.csv", header=None).to_numpy()
    else:
        with np.load(data / "tables" / f"{name}.npz") as table:
            return _drawn(table["x"], table["y"][:, targets], rng)
    return _drawn(every[:, : targets.start], every[:, targets], rng)  # the inputs come before the targets


def _assays(targets: slice, rng: Random, data: Path) -> Rows:
    """Molecules by the pieces of their formula."""
    frame = pd.read_csv(data / "tox21.csv.gz")
    pieces = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), lowercase=False, max_features=_SYMBOLS)
    x = TruncatedSVD(_PARTS, random_state=0).fit_transform(pieces.fit_transform(frame["smiles"]))
    return _drawn(x, frame.drop(columns=["mol_id", "smiles"]).iloc[:, targets].to_numpy(), rng, 2 * _ROWS)


SOURCES: dict[str, tuple[str, str, str, Callable[[Random, Path], Rows]]] = {
    **{
        name: (half, group, "regression", partial(_formula, inputs, target))
        for half, own in _FORMULAS.items()
        for name, (group, inputs, target) in own.items()
    },
    "rare 3 %": ("choose", "rare classes", "binary", partial(_rare, 0.03, 2.0)),
    "rare 8 %": ("choose", "rare classes", "binary", partial(_rare, 0.08, 1.5)),
    "rare 16 %": ("choose", "rare classes", "binary", partial(_rare, 0.16, 1.2)),
    "mixture": ("choose", "classes", "classification", partial(_centres, [0.2] * 5, 8, 1.8)),
    "rare shell": ("report", "rare classes", "binary", _rare_shell),
    "rare of four": ("report", "rare classes", "classification", partial(_centres, [0.7, 0.2, 0.06, 0.04], 6, 1.5)),
    "close": ("report", "classes", "classification", partial(_centres, [0.25] * 4, 6, 1.0)),
    "apart": ("report", "classes", "classification", partial(_centres, [0.4, 0.3, 0.3], 10, 1.5)),
    "breast cancer": ("choose", "classes", "binary", partial(_bundled, "breast_cancer")),
    "diabetes": ("choose", "tables, numbers", "regression", partial(_bundled, "diabetes")),
    "digits": ("choose", "classes", "classification", partial(_bundled, "digits")),
    "wine": ("choose", "classes", "classification", partial(_bundled, "wine")),
    "iris": ("report", "classes", "classification", partial(_bundled, "iris")),
    "bias": ("choose", "tables, numbers", "regression", partial(_table, "bias", slice(0, 4))),
    "jura": ("choose", "tables, numbers", "regression", partial(_table, "jura", slice(0, 4))),
    "rf1": ("choose", "tables, numbers", "regression", partial(_table, "rf1", slice(0, 4))),
    "atp1d": ("choose", "tables, numbers", "regression", partial(_table, "atp1d", slice(0, 4))),
    "emotions": ("choose", "tables, classes", "binary", partial(_table, "emotions", slice(0, 4))),
    "yeast": ("choose", "tables, classes", "binary", partial(_table, "yeast", slice(0, 4))),
    "rf1, other targets": ("report", "tables, numbers", "regression", partial(_table, "rf1", slice(4, 8))),
    "atp1d, other targets": ("report", "tables, numbers", "regression", partial(_table, "atp1d", slice(4, 6))),
    "sarcos": ("report", "tables, numbers", "regression", partial(_table, "sarcos", slice(21, 25))),
    "school": ("report", "tables, numbers", "regression", partial(_table, "school", slice(28, 29))),
    "emotions, other targets": ("report", "tables, classes", "binary", partial(_table, "emotions", slice(4, 6))),
    "yeast, other targets": ("report", "tables, classes", "binary", partial(_table, "yeast", slice(4, 8))),
    "tox21 a": ("choose", "rare classes", "binary", partial(_assays, slice(2, 5))),
    "tox21 b": ("choose", "rare classes", "binary", partial(_assays, slice(9, 12))),
    "tox21 c": ("report", "rare classes", "binary", partial(_assays, slice(5, 7))),
}
"""The part, the group, the kind and the rows of each; the parts were written down before the first look."""


@lru_cache(maxsize=4)
def load(name: str, seed: int, data: Path) -> Task:
    """The data of this name, drawn by the seed. `data`: the folder of the tables and assays."""
    _, group, kind, rows = SOURCES[name]
    x, y = rows(np.random.default_rng(seed), data)
    return Task(group, kind, x.astype(np.float64), y.astype(np.float64).reshape(len(y), -1))
