"""What `excessmtl reproduce` can draw: a registry of figures, and how they put pictures and numbers on disk.

A figure is a function from a scale and a folder to the files it wrote. To add one, decorate it and import its module in
`_load`; the command finds it by name.
"""

import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from excessmtl.files import atomic_write

Scale = Literal["quick", "paper"]
SCALES = ("quick", "paper")
Draw = Callable[[Scale, Path], list[Path]]
_MODULES = ("excessmtl.studies.theory.report", "excessmtl.studies.theory.conceptual")


@dataclass(frozen=True)
class Figure:
    """A figure by name: what it shows, and how it is made."""

    name: str
    summary: str
    draw: Draw


_FIGURES: dict[str, Figure] = {}


def figure(name: str, summary: str) -> Callable[[Draw], Draw]:
    """Register a function as the figure `name`."""

    def register(draw: Draw) -> Draw:
        _FIGURES[name] = Figure(name, summary, draw)
        return draw

    return register


def registry() -> Mapping[str, Figure]:
    """The figures by name."""
    for module in _MODULES:  # imported when asked for: they bring matplotlib and scipy
        importlib.import_module(module)
    return dict(sorted(_FIGURES.items()))


def chosen(name: str, scale: str) -> tuple[list[Figure], Scale]:
    """The figures that `name` stands for ("all": every one), both arguments checked."""
    figures = registry()
    if name != "all" and name not in figures:
        raise ValueError(f"unknown figure {name!r}; the figures are {', '.join(figures)} and all")
    if scale not in SCALES:
        raise ValueError(f"--scale must be quick or paper, found {scale!r}")
    checked: Scale = "paper" if scale == "paper" else "quick"
    return list(figures.values()) if name == "all" else [figures[name]], checked


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
