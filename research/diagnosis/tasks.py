"""The data of the study, with clean labels, in two parts: rules are chosen on one and reported on the other."""

from collections.abc import Callable
from dataclasses import dataclass
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
_ROWS = 1500
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


def _terraces(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng, 4)
    return x, np.floor(2.5 * x[:, 0] + 1.5 * x[:, 1] * x[:, 2]) + 0.1 * rng.normal(size=_ROWS)


def _claims(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    return x, rng.gamma(4, np.exp(1.2 * x[:, 0] - x[:, 1] * x[:, 2]))


def _floods(rng: np.random.Generator) -> tuple[Array, Array]:
    """Large events are more frequent for some inputs."""
    x = _inputs(rng)
    flood = rng.random(_ROWS) < 0.01 + 0.05 * (x[:, 3] > 0)
    return x, np.cos(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=_ROWS) + flood * rng.lognormal(1.5, 0.5, _ROWS)


def _seasons(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    return x, x[:, 0] + np.sin(2 * x[:, 1]) + (0.1 + 0.4 * np.sin(6 * x[:, 2]) ** 2) * rng.normal(size=_ROWS)


def _funnel(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _inputs(rng)
    level = np.exp(x[:, 0] + 0.5 * x[:, 1])
    return x, level + 0.15 * level * rng.standard_t(5, _ROWS)


def _rare(share: float, lead: float) -> Callable[[np.random.Generator], tuple[Array, Array]]:
    def made(rng: np.random.Generator) -> tuple[Array, Array]:
        y = (rng.random(2 * _ROWS) < share).astype(np.float64)
        return rng.normal(size=(2 * _ROWS, 6)) + lead * y[:, None] * np.array([1, 1, 0.5, 0, 0, 0]), y

    return made


def _rare_shell(rng: np.random.Generator) -> tuple[Array, Array]:
    """Some 6 % of the samples are far out, in any direction."""
    x = rng.normal(size=(2 * _ROWS, 4))
    far = np.linalg.norm(x, axis=1) + 0.2 * rng.normal(size=len(x))
    return x, (far > 3.0).astype(np.float64)


def _centres(shares: list[float], columns: int, apart: float) -> Callable[[np.random.Generator], tuple[Array, Array]]:
    """Classes of these shares around points that are drawn once."""

    def made(rng: np.random.Generator) -> tuple[Array, Array]:
        y = rng.choice(len(shares), p=shares, size=_ROWS)
        centres = apart * np.random.default_rng(0).normal(size=(len(shares), columns))
        return rng.normal(size=(_ROWS, columns)) + centres[y], y.astype(np.float64)

    return made


_MADE: dict[str, tuple[str, str, str, Callable[[np.random.Generator], tuple[Array, Array]]]] = {
    "step": ("choose", "steps", "regression", _step),
    "checker": ("choose", "steps", "regression", _checker),
    "prices": ("choose", "skewed", "regression", _prices),
    "incomes": ("choose", "skewed", "regression", _incomes),
    "events": ("choose", "rare large events", "regression", _events),
    "bursts": ("choose", "rare large events", "regression", _bursts),
    "proportional": ("choose", "uneven errors", "regression", _proportional),
    "relative": ("choose", "uneven errors", "regression", _relative),
    "uneven": ("choose", "uneven errors", "regression", _uneven),
    "fans": ("choose", "uneven errors", "regression", _fans),
    "rare 3 %": ("choose", "rare classes", "binary", _rare(0.03, 2.0)),
    "rare 8 %": ("choose", "rare classes", "binary", _rare(0.08, 1.5)),
    "rare 16 %": ("choose", "rare classes", "binary", _rare(0.16, 1.2)),
    "mixture": ("choose", "classes", "classification", _centres([0.2] * 5, 8, 1.8)),
    "terraces": ("report", "steps", "regression", _terraces),
    "claims": ("report", "skewed", "regression", _claims),
    "floods": ("report", "rare large events", "regression", _floods),
    "seasons": ("report", "uneven errors", "regression", _seasons),
    "funnel": ("report", "uneven errors", "regression", _funnel),
    "rare shell": ("report", "rare classes", "binary", _rare_shell),
    "rare of four": ("report", "rare classes", "classification", _centres([0.7, 0.2, 0.06, 0.04], 6, 1.5)),
    "close": ("report", "classes", "classification", _centres([0.25] * 4, 6, 1.0)),
    "apart": ("report", "classes", "classification", _centres([0.4, 0.3, 0.3], 10, 1.5)),
}
_BUNDLED = {
    "breast cancer": ("choose", "classes", "binary", datasets.load_breast_cancer),
    "diabetes": ("choose", "tables, numbers", "regression", datasets.load_diabetes),
    "digits": ("choose", "classes", "classification", datasets.load_digits),
    "wine": ("choose", "classes", "classification", datasets.load_wine),
    "iris": ("report", "classes", "classification", datasets.load_iris),
}
_TABLES = {
    "bias": ("choose", "tables, numbers", "regression", slice(0, 4)),
    "jura": ("choose", "tables, numbers", "regression", slice(0, 4)),
    "rf1": ("choose", "tables, numbers", "regression", slice(0, 4)),
    "atp1d": ("choose", "tables, numbers", "regression", slice(0, 4)),
    "emotions": ("choose", "tables, classes", "binary", slice(0, 4)),
    "yeast": ("choose", "tables, classes", "binary", slice(0, 4)),
    "rf1, other targets": ("report", "tables, numbers", "regression", slice(4, 8)),
    "atp1d, other targets": ("report", "tables, numbers", "regression", slice(4, 6)),
    "sarcos": ("report", "tables, numbers", "regression", slice(21, 25)),
    "school": ("report", "tables, numbers", "regression", slice(28, 29)),
    "emotions, other targets": ("report", "tables, classes", "binary", slice(4, 6)),
    "yeast, other targets": ("report", "tables, classes", "binary", slice(4, 8)),
}
_ASSAYS = {
    "tox21 a": ("choose", slice(2, 5)),
    "tox21 b": ("choose", slice(9, 12)),
    "tox21 c": ("report", slice(5, 9)),
}
HALVES = {name: half for made in (_MADE, _BUNDLED, _TABLES, _ASSAYS) for name, (half, *_) in made.items()}
"""Which part each of them is in, by name, written down before the first look."""


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
        _, group, kind, columns = _TABLES[name]
        x, y = _table(name, columns, data)
    else:
        group, kind = "rare classes", "binary"
        x, y = _assays(data / "tox21.csv.gz", _ASSAYS[name][1])
    rows = rng.permutation(len(x))[: _ROWS if group != "rare classes" else 2 * _ROWS]
    return Task(name, group, kind, x[rows].astype(np.float64), y[rows].astype(np.float64).reshape(len(rows), -1))


def _table(name: str, columns: slice, data: Path) -> tuple[Array, Array]:
    if name == "sarcos":
        every = loadmat(data / "sarcos_inv_test.mat")["sarcos_inv_test"]
        return every[:, :21], every[:, columns]
    if name == "school":
        every = pd.read_csv(data / "school.csv", header=None).to_numpy()
        return every[:, :28], every[:, columns]
    with np.load(data / "tables" / f"{name.split(',')[0]}.npz") as table:
        return table["x"], table["y"][:, columns]


def _assays(path: Path, chosen: slice) -> tuple[Array, Array]:
    """Molecules by the pieces of their formula."""
    frame = pd.read_csv(path)
    pieces = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), lowercase=False, max_features=_SYMBOLS)
    x = TruncatedSVD(_PARTS, random_state=0).fit_transform(pieces.fit_transform(frame["smiles"]))
    return x, frame.drop(columns=["mol_id", "smiles"]).iloc[:, chosen].to_numpy()
