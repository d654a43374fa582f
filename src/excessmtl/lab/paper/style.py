"""One look for all figures: each method has its colour and marker everywhere."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from excessmtl.lab.compare.palette import known_look
from excessmtl.lab.paper.methods import METHODS, ROBUST
from excessmtl.lab.paper.subjects import Subject

ORDER = tuple(METHODS)
SMALL = 8
_CHARACTERS_PER_INCH = 14


def look(shown: str) -> dict[str, Any]:
    """Colour, marker and line of a method."""
    emphasis = {"lw": 2.2, "ms": 6, "zorder": 3} if shown == ROBUST else {"lw": 1.4, "ms": 5}
    known = known_look(METHODS[shown].name, METHODS[shown].options)
    assert known is not None, f"{shown} has no look of its own"
    return {**known.in_matplotlib, **emphasis}


def by_method(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each method in a table, in the order of all legends."""
    return ((shown, table[table.method == shown]) for shown in ORDER if shown in set(table.method))


def heading(picture: Figure, text: str) -> None:
    """A line above all panels; two where one would be wider than the picture."""
    fits = len(text) <= _CHARACTERS_PER_INCH * picture.get_figwidth()
    picture.suptitle(text if fits else text.replace("; ", "\n", 1), fontsize=SMALL + 1)


def spread_heading(picture: Figure, subject: Subject, table: pd.DataFrame, drawn_as: str) -> None:
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


def legend_below(picture: Figure, panels: Sequence[Axes]) -> None:
    """One legend for all panels, each name once."""
    named = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    order = sorted(named, key=lambda label: ORDER.index(label) if label in ORDER else len(ORDER))
    picture.legend([named[label] for label in order], order, loc="outside lower center", ncols=4, fontsize=SMALL)
