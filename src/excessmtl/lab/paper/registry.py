"""What `excessmtl reproduce` can draw: a registry of figures, how they look and how they are put on disk.

A figure is a function that gives tables and pictures: from training runs, or from what it computes itself. To add one,
put a file with a decorated function into `paper/figures/`: the command finds it by name.
"""

import importlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from excessmtl.files import write_whole
from excessmtl.lab.compare.collect import csv_text
from excessmtl.lab.compare.palette import known_look
from excessmtl.lab.paper import figures
from excessmtl.lab.paper.plans import SCALES, Data, Scale, grid
from excessmtl.lab.paper.subjects import DATA, KIT, METHODS, ROBUST, SINGLE_TASK, Runs, Subject
from excessmtl.lab.runs.config import RunConfig

SMALL = 8
_CHARACTERS_PER_INCH = 14


@dataclass(frozen=True)
class Drawing:
    """What a figure shows; the keys are what the names of files add to the figure's."""

    tables: Mapping[str, pd.DataFrame | Sequence[Mapping[str, Any]]]
    pictures: Mapping[str, Canvas]

    def save(self, folder: Path, name: str, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
        """Tables as CSV with six significant digits, pictures as these kinds of file; each whole or not there."""
        files = {
            folder / f"{name}{suffix}.csv": csv_text(pd.DataFrame(table)).encode()
            for suffix, table in self.tables.items()
        }
        for suffix, picture in self.pictures.items():
            for kind in kinds:
                buffer = io.BytesIO()
                picture.savefig(buffer, format=kind, dpi=95, metadata={"Date": None} if kind == "svg" else None)
                files[folder / f"{name}{suffix}.{kind}"] = buffer.getvalue()
        for path, content in files.items():
            write_whole(path, content)
        return list(files)


Draw = Callable[..., Drawing | None]
"""From the runs on one data set, a `Subject` and its table, None where these do not show it; or from the scale."""


@dataclass(frozen=True)
class Figure:
    """A figure by name, and which runs it is drawn from."""

    name: str
    summary: str
    draw: Draw
    about: str = ""
    """The data of the paper that the runs are on; empty: the figure is computed without any."""
    methods: Sequence[str] = ()
    noise: Sequence[float] | None = None
    """The levels; None: all of the plan's."""
    files: Sequence[str] = ()
    """The columns of files that a run must have kept."""
    reference: bool = False
    """Whether single-task networks without noise are shown too; they are trained at the paper's scale."""

    def runs(self, scale: Scale, data: Data) -> list[RunConfig]:
        """The runs that it needs."""
        if not self.about:
            return []
        alone = grid(self.about, scale, data, (SINGLE_TASK,), (0.0,)) if self.reference and scale == "paper" else []
        return [*grid(self.about, scale, data, self.methods, self.noise), *alone]

    def drawings(self, runs: Runs) -> Iterator[tuple[str, Drawing]]:
        """Name and drawing for each data set that the runs have: the paper's, stand-ins, or both."""
        for subject in runs.subjects(self.about) if self.about else ():
            shown = subject.of([*self.methods, SINGLE_TASK] if self.reference else self.methods)
            shown = shown[shown.noise.isin(shown.noise if self.noise is None else self.noise)]
            shown = shown.dropna(subset=list(self.files))
            drawing = None if shown.empty else self.draw(subject, shown)
            if drawing is not None:
                yield f"{self.name}{subject.suffix}", drawing


_FIGURES: dict[str, Figure] = {}


def figure(name: str, summary: str, *about: Any, **runs: Any) -> Callable[[Draw], Draw]:
    """Register a function as the figure `name`; the other arguments are those of `Figure`."""

    def register(draw: Draw) -> Draw:
        _FIGURES[name] = Figure(name, summary, draw, *about, **runs)
        return draw

    return register


def registry(wanted: str | None = None) -> Mapping[str, Figure]:
    """The figures by name; with `wanted` at least this one, where there is one of that name."""
    found = [path for folder in figures.__path__ for path in sorted(Path(folder).glob("[!_]*.py"))]
    # A figure alone is found by the text of its file: importing the others would bring scipy and joblib.
    decorated = re.compile(rf'@figure\(\s*"{re.escape(wanted or "")}"')
    for path in [path for path in found if decorated.search(path.read_text(encoding="utf-8"))] or found:
        importlib.import_module(f"{figures.__name__}.{path.stem}")
    return dict(sorted(_FIGURES.items()))


def chosen(name: str, scale: str) -> tuple[list[Figure], Scale]:
    """The figures that `name` stands for ("all": every one), both arguments checked."""
    known = registry(name)
    if name != "all" and name not in known:
        raise ValueError(f"unknown figure {name!r}; the figures are {', '.join(known)} and all")
    if scale not in SCALES:
        raise ValueError(f"--scale must be quick or paper, found {scale!r}")
    return list(known.values()) if name == "all" else [known[name]], scale


def data_paths(pairs: Sequence[str]) -> Data:
    """`benchmark=path` arguments, checked: known benchmarks, paths that exist."""
    found = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or name not in DATA:
            raise ValueError(f"--data must look like name=path with a name of {', '.join(DATA)}, found {pair!r}")
        if not Path(path).exists():
            raise ValueError(f"--data {pair}: {path} does not exist")
        found[name] = path
    return found


def canvas(width: float, height: float) -> Canvas:
    """An empty picture that needs no display and leaves matplotlib's global state alone."""
    picture = Canvas(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(picture)
    return picture


def look(shown: str) -> dict[str, Any]:
    """Colour, marker and line of a method."""
    emphasis = {"lw": 2.2, "ms": 6, "zorder": 3} if shown in (KIT, ROBUST) else {"lw": 1.4, "ms": 5}
    known = known_look(METHODS[shown].name, METHODS[shown].options, METHODS[shown].loss)
    assert known is not None, f"{shown} has no look of its own"
    return {**known.in_matplotlib, **emphasis}


def by_method(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each method in a table, in the order of all legends."""
    return ((shown, table[table.method == shown]) for shown in METHODS if shown in set(table.method))


def heading(picture: Canvas, text: str) -> None:
    """A line above all panels; two where one would be wider than the picture."""
    fits = len(text) <= _CHARACTERS_PER_INCH * picture.get_figwidth()
    picture.suptitle(text if fits else text.replace("; ", "\n", 1), fontsize=SMALL + 1)


def spread_heading(picture: Canvas, subject: Subject, table: pd.DataFrame, drawn_as: str) -> None:
    """Which data, how long, and what the spread is that is drawn as bands or bars."""
    spread = f"{drawn_as}: one standard deviation over seeds" if table.seeds.max() > 1 else "one seed"
    heading(picture, f"{subject.title}; {subject.setting.epochs} epochs; {spread}")


def tidy(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Labels, small ticks and a faint grid."""
    axes.set_title(title, fontsize=SMALL + 1)
    axes.set_xlabel(xlabel, fontsize=SMALL)
    axes.set_ylabel(ylabel, fontsize=SMALL)
    axes.tick_params(labelsize=SMALL - 0.5)
    axes.grid(alpha=0.3)


def log_scale(axes: Axes) -> None:
    """A logarithmic vertical axis with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_below(picture: Canvas, panels: Sequence[Axes]) -> None:
    """One legend for all panels, each name once."""
    named = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    order = [label for label in METHODS if label in named]
    order += [label for label in named if label not in METHODS]
    picture.legend([named[label] for label in order], order, loc="outside lower center", ncols=4, fontsize=SMALL)
