"""The look of every method of a report, the same wherever the page shows it."""

from collections.abc import Iterator
from itertools import cycle

import pandas as pd

from excessmtl.lab.compare.palette import COLOURS, Look
from excessmtl.lab.compare.settings import method_order
from excessmtl.lab.paper.methods import METHODS, with_shown_names

_DASHES = ("dash", "dot", "dashdot")
_SYMBOLS = ("hexagon", "pentagon", "star-square", "bowtie", "hourglass", "diamond-tall")


def looks_of(frame: pd.DataFrame) -> dict[str, Look]:
    """A look for every label, in the order of the page; two are alike only where there are some two hundred labels.

    The methods of the paper look alike in every report, and as in the figures of `excessmtl reproduce`.
    """
    looks: dict[str, Look] = {}
    shown = with_shown_names(frame).groupby("label")["shown"].first()
    spare = _spare()
    for label in method_order(frame):
        known = METHODS[shown[label]].look if shown[label] in METHODS else None
        looks[label] = known if known is not None and known not in looks.values() else next(spare)
    return looks


def _spare() -> Iterator[Look]:
    """Looks that no known method has, without end: first the free colours, then all of them in other dashes."""
    free = sorted(set(range(len(COLOURS))) - {method.look.colour for method in METHODS.values()})
    symbols = cycle(_SYMBOLS)
    yield from (Look(colour, next(symbols)) for colour in free)
    for dash in cycle(_DASHES):
        yield from (Look(colour, next(symbols), dash) for colour in range(len(COLOURS)))
        if dash == _DASHES[-1]:
            next(symbols)  # the next round has every colour with another symbol
