"""What `excessmtl reproduce` can draw: a registry of figures, and how they put pictures and numbers on disk.

A figure is a function that writes files into a folder: one that computes what it shows (`figure`), or one that is drawn
from training runs, with a list of the runs it needs (`drawn_from_runs`). To add one, put a file with a decorated
function into `paper/figures/`: the command finds it by name.
"""

import importlib
import io
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from excessmtl.files import atomic_write
from excessmtl.paper import figures
from excessmtl.paper.collected import Runs
from excessmtl.paper.subjects import TITLES, Subject
from excessmtl.training.config import RunConfig

Scale = Literal["quick", "paper"]
SCALES = ("quick", "paper")
Draw = Callable[[Scale, Path], list[Path]]
Data = Mapping[str, str]
"""Benchmark -> file or folder with its data."""
RunConfigs = list[RunConfig]
Needs = Callable[[Scale, Data], RunConfigs]
DrawSubject = Callable[[Subject, str, Path], list[Path]]
"""(runs on the same data, how to name the files, folder) -> the files; none where these runs do not show it."""


@dataclass(frozen=True)
class Figure:
    """A figure by name: what it shows, and how it is made."""

    name: str
    summary: str
    draw: Draw


@dataclass(frozen=True)
class RunsFigure:
    """A figure that is drawn from training runs: about which data of the paper, which runs it needs, and how."""

    name: str
    summary: str
    about: str
    runs: Needs
    draw_one: DrawSubject

    def stem(self, subject: Subject) -> str:
        """The name of the picture of these data."""
        return f"{self.name}{subject.suffix}"

    def draw(self, runs: Runs, out: Path) -> list[Path]:
        """A picture and its numbers for each data set that the runs have: the paper's, stand-ins, or both."""
        return [
            path for subject in runs.subjects(self.about) for path in self.draw_one(subject, self.stem(subject), out)
        ]


_FIGURES: dict[str, Figure | RunsFigure] = {}


def figure(name: str, summary: str) -> Callable[[Draw], Draw]:
    """Register a function as the figure `name`."""

    def register(draw: Draw) -> Draw:
        _FIGURES[name] = Figure(name, summary, draw)
        return draw

    return register


def drawn_from_runs(name: str, summary: str, about: str, runs: Needs) -> Callable[[DrawSubject], DrawSubject]:
    """Register a function from runs to files as the figure `name` about a benchmark; `runs`: which ones it needs."""

    def register(draw: DrawSubject) -> DrawSubject:
        _FIGURES[name] = RunsFigure(name, summary, about, runs, draw)
        return draw

    return register


def registry() -> Mapping[str, Figure | RunsFigure]:
    """The figures by name."""
    for module in pkgutil.iter_modules(figures.__path__):  # imported when asked for: they bring scipy and joblib
        importlib.import_module(f"{figures.__name__}.{module.name}")
    return dict(sorted(_FIGURES.items()))


def chosen(name: str, scale: str) -> tuple[list[Figure | RunsFigure], Scale]:
    """The figures that `name` stands for ("all": every one), both arguments checked."""
    known = registry()
    if name != "all" and name not in known:
        raise ValueError(f"unknown figure {name!r}; the figures are {', '.join(known)} and all")
    if scale not in SCALES:
        raise ValueError(f"--scale must be quick or paper, found {scale!r}")
    checked: Scale = "paper" if scale == "paper" else "quick"
    return list(known.values()) if name == "all" else [known[name]], checked


def data_paths(pairs: Sequence[str]) -> Data:
    """`benchmark=path` arguments, checked: known benchmarks, paths that exist."""
    found = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or name not in TITLES:
            raise ValueError(f"--data must look like name=path with a name of {', '.join(TITLES)}, found {pair!r}")
        if not Path(path).exists():
            raise ValueError(f"--data {pair}: {path} does not exist")
        found[name] = path
    return found


def canvas(width: float, height: float) -> Canvas:
    """An empty picture that needs no display and leaves matplotlib's global state alone."""
    picture = Canvas(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(picture)
    return picture


def save_picture(picture: Canvas, folder: Path, name: str) -> list[Path]:
    """PNG and SVG, each whole or not there."""
    paths = []
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        picture.savefig(buffer, format=kind, dpi=95, metadata={"Date": None} if kind == "svg" else None)
        paths.append(folder / f"{name}.{kind}")
        with atomic_write(paths[-1]) as file:
            file.write(buffer.getvalue())
    return paths


def save_table(rows: Sequence[Mapping[str, Any]], folder: Path, name: str) -> list[Path]:
    """CSV with six significant digits."""
    path = folder / f"{name}.csv"
    with atomic_write(path) as file:
        file.write(pd.DataFrame(list(rows)).to_csv(index=False, float_format="%.6g").encode())
    return [path]
