"""The look of a method: its colour, marker and line, the same wherever the page shows it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

import pandas as pd

from excessmtl.analysis.settings import method_order
from excessmtl.paper.methods import (
    GRADNORM,
    GROUPDRO,
    IMTL,
    MGDA,
    MOML,
    NORMALISED,
    PAPER,
    ROBUST,
    SINGLE_TASK,
    UNIFORM,
    with_shown_names,
)

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
    ROBUST: Look(0, "circle"),
    PAPER: Look(1, "square"),
    NORMALISED: Look(1, "diamond", "dash"),
    UNIFORM: Look(2, "x"),
    GRADNORM: Look(3, "triangle-up"),
    MGDA: Look(4, "triangle-down"),
    GROUPDRO: Look(5, "cross"),
    IMTL: Look(6, "star"),
    MOML: Look(7, "star-diamond"),
    SINGLE_TASK: Look(8, "circle-open", "dot"),
}
"""The methods of the paper look alike in every report, and as in the figures of `excessmtl reproduce`."""


def looks_of(frame: pd.DataFrame) -> dict[str, Look]:
    """A look for every label, in the order of the page; two are alike only where there are some fifty labels."""
    looks: dict[str, Look] = {}
    shown = with_shown_names(frame).groupby("label")["shown"].first()
    spare = _spare()
    for label in method_order(frame):
        known = _KNOWN.get(shown[label])
        looks[label] = known if known is not None and known not in looks.values() else next(spare)
    return looks


def _spare() -> Iterator[Look]:
    """Looks that no known method has, without end: first the free colours, then all of them in other dashes."""
    free = sorted(set(range(COLOURS)) - {look.colour for look in _KNOWN.values()})
    symbols = cycle(_SYMBOLS)
    yield from (Look(colour, next(symbols)) for colour in free)
    for dash in cycle(_DASHES):
        yield from (Look(colour, next(symbols), dash) for colour in range(COLOURS))
