"""The data of the study, with clean labels, in two halves: rules are chosen on one and reported on the other."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

Array = NDArray[Any]
_ROWS = 1500
_TARGETS = 4
"""At most, of a table."""
_SYMBOLS, _PARTS = 1024, 20


@dataclass(frozen=True)
class Task:
    """Inputs [n, d] and clean labels [n, tasks] of one or several tasks, NaN where there is none."""

    name: str
    group: str
    """What is reported together."""
    kind: str
    """"classification", "binary" or "regression", of all its tasks."""
    x: Array
    y: Array


def _inputs(rng: np.random.Generator, columns: int = 5) -> Array:
    return rng.uniform(-1, 1, size=(_ROWS, columns))


def _smooth(x: Array) -> Array:
    return np.asarray(np.sin(3 * x[:, 0]) + x[:, 1] ** 2 + x[:, 2])


def _step(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng, 3)
    return x, np.where(x[:, 0] > 0.2, 1.0, 0.0) + 0.05 * rng.normal(size=_ROWS)


def _checker(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng, 3)
    return x, np.sign(x[:, 0]) * np.sign(x[:, 1]) + 2 * np.sign(x[:, 2] - 0.3) + 0.05 * rng.normal(size=_ROWS)


def _prices(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    return x, np.exp(_smooth(x) + 0.3 * rng.normal(size=_ROWS))


def _incomes(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    return x, np.exp(1.5 * x[:, 0] + np.abs(x[:, 1]) + 0.5 * rng.normal(size=_ROWS))


def _events(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    return x, _smooth(x) + 0.2 * rng.normal(size=_ROWS) + 10 * (rng.random(_ROWS) < 0.03)


def _bursts(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    return x, x[:, 0] + 0.1 * rng.normal(size=_ROWS) + rng.exponential(5, _ROWS) * (rng.random(_ROWS) < 0.05)


def _proportional(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    return x, 2 * _smooth(x) * (1 + 0.3 * rng.normal(size=_ROWS))


def _relative(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    return x, (3 * x[:, 0] + x[:, 1]) * (1 + 0.4 * rng.normal(size=_ROWS))


def _uneven(rng: np.random.Generator) -> tuple[Array, Array]:
    """The spread depends on inputs that the level does not depend on."""
    x = _inputs(rng)
    return x, _smooth(x) + np.exp(1.5 * x[:, 3] - 2) * rng.normal(size=_ROWS)


def _fans(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    return x, 2 * x[:, 0] + np.where(x[:, 1] > 0, 0.6, 0.1) * rng.normal(size=_ROWS)


def _rare(share: float, lead: float) -> Callable[[np.random.Generator], tuple[Array, Array]]:
    def made(rng: np.random.Generator) -> tuple[Array, Array]:
        y = (rng.random(2 * _ROWS) < share).astype(np.float64)
        return rng.normal(size=(2 * _ROWS, 6)) + lead * y[:, None] * np.array([1, 1, 0.5, 0, 0, 0]), y

    return made


def _mixture(rng: np.random.Generator) -> tuple[Array, Array]:
    y = rng.integers(5, size=_ROWS)
    return rng.normal(size=(_ROWS, 8)) + 1.8 * np.random.default_rng(0).normal(size=(5, 8))[y], y.astype(np.float64)


_MADE: dict[str, tuple[str, str, str, Callable[[np.random.Generator], tuple[Array, Array]]]] = {
    "step": ("choose", "steps", "regression", _step),
    "prices": ("choose", "skewed", "regression", _prices),
    "events": ("choose", "rare large events", "regression", _events),
    "proportional": ("choose", "uneven errors", "regression", _proportional),
    "uneven": ("choose", "uneven errors", "regression", _uneven),
    "rare 8 %": ("choose", "rare classes", "binary", _rare(0.08, 1.5)),
    "mixture": ("choose", "classes", "classification", _mixture),
    "checker": ("report", "steps", "regression", _checker),
    "incomes": ("report", "skewed", "regression", _incomes),
    "bursts": ("report", "rare large events", "regression", _bursts),
    "relative": ("report", "uneven errors", "regression", _relative),
    "fans": ("report", "uneven errors", "regression", _fans),
    "rare 3 %": ("report", "rare classes", "binary", _rare(0.03, 2.0)),
    "rare 16 %": ("report", "rare classes", "binary", _rare(0.16, 1.2)),
}
_BUNDLED = {
    "breast cancer": ("choose", "classes", "binary", datasets.load_breast_cancer),
    "diabetes": ("choose", "tables, numbers", "regression", datasets.load_diabetes),
    "digits": ("report", "classes", "classification", datasets.load_digits),
    "wine": ("report", "classes", "classification", datasets.load_wine),
}
_TABLES = {
    "bias": ("choose", "tables, numbers", "regression"),
    "jura": ("choose", "tables, numbers", "regression"),
    "emotions": ("choose", "tables, classes", "binary"),
    "rf1": ("report", "tables, numbers", "regression"),
    "atp1d": ("report", "tables, numbers", "regression"),
    "yeast": ("report", "tables, classes", "binary"),
}
_ASSAYS = {"tox21 a": ("choose", slice(2, 5)), "tox21 b": ("report", slice(9, 12))}
HALVES = {name: half for made in (_MADE, _BUNDLED, _TABLES, _ASSAYS) for name, (half, *_) in made.items()}
"""Which half each of them is in, by name, written down before the first look."""


def load(name: str, seed: int, data: Path) -> Task:
    """The data of this name, at most some 1,500 rows drawn by the seed. `data`: the folder of the tables and assays."""
    rng = np.random.default_rng(seed)
    if name in _MADE:
        _, group, kind, made = _MADE[name]
        x, y = made(rng)
        return Task(name, group, kind, x, y.reshape(len(y), -1))
    if name in _BUNDLED:
        _, group, kind, loaded = _BUNDLED[name]
        x, y = loaded(return_X_y=True)
    elif name in _TABLES:
        _, group, kind = _TABLES[name]
        with np.load(data / "tables" / f"{name}.npz") as table:
            x, y = table["x"], table["y"][:, :_TARGETS]
    else:
        group, kind = "rare classes", "binary"
        x, y = _assays(data / "tox21.csv.gz", _ASSAYS[name][1])
    rows = rng.permutation(len(x))[: _ROWS if group != "rare classes" else 2 * _ROWS]
    return Task(name, group, kind, x[rows].astype(np.float64), y[rows].astype(np.float64).reshape(len(rows), -1))


def _assays(path: Path, chosen: slice) -> tuple[Array, Array]:
    """Molecules by the pieces of their formula."""
    frame = pd.read_csv(path)
    pieces = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), lowercase=False, max_features=_SYMBOLS)
    x = TruncatedSVD(_PARTS, random_state=0).fit_transform(pieces.fit_transform(frame["smiles"]))
    return x, frame.drop(columns=["mol_id", "smiles"]).iloc[:, chosen].to_numpy()
