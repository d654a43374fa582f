"""The look of a method: its colour, marker and line, the same wherever the page shows it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pandas as pd

from excessmtl.reports.settings import method_order

COLOURS = 12
"""`--s0` to `--s11` of the style sheet, which has them for light and dark."""
_DASHES = ("dash", "dot", "dashdot")
_SYMBOLS = ("hexagon", "pentagon", "star-square", "bowtie", "hourglass", "diamond-tall")


@dataclass(frozen=True)
class Look:
    """Colour by its number in the style sheet; marker and line by their names in plotly."""

    colour: int
    symbol: str
    dash: str = "solid"


_KNOWN = {
    "excess": Look(0, "circle"),
    "excess, paper": Look(1, "square"),
    "excess, paper, normalised": Look(1, "diamond", "dash"),
    "uniform": Look(2, "x"),
    "gradnorm": Look(3, "triangle-up"),
    "mgda": Look(4, "triangle-down"),
    "groupdro": Look(5, "cross"),
    "imtl": Look(6, "star"),
    "moml": Look(7, "star-diamond"),
    "single": Look(8, "circle-open", "dot"),
}
"""The methods of the paper look alike in every report, and as in the figures of `excessmtl reproduce`."""


def looks_of(frame: pd.DataFrame) -> dict[str, Look]:
    """A look for every label, in the order of the page; two are alike only where there are some fifty labels."""
    looks: dict[str, Look] = {}
    runs = {label: group.iloc[0] for label, group in frame.groupby("label")}
    spare = _spare()
    for label in method_order(frame):
        known = _KNOWN.get(_kind(str(runs[label]["method"]), runs[label]["options"]))
        looks[label] = known if known is not None and known not in looks.values() else next(spare)
    return looks


def _kind(method: str, options: Mapping[str, Any]) -> str:
    if method == "excess" and options.get("estimator") == "paper":
        return "excess, paper, normalised" if options.get("normalize") == "initial" else "excess, paper"
    return method


def _spare() -> Iterator[Look]:
    """Looks that no known method has, without end: first the free colours, then all of them in other dashes."""
    free = sorted(set(range(COLOURS)) - {look.colour for look in _KNOWN.values()})
    symbols = cycle(_SYMBOLS)
    yield from (Look(colour, next(symbols)) for colour in free)
    for dash in cycle(_DASHES):
        yield from (Look(colour, next(symbols), dash) for colour in range(COLOURS))
