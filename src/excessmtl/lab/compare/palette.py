"""One palette for all pictures: colours that colour-blind readers can tell apart, each method with its own look."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import pandas as pd

from excessmtl.lab.compare.settings import chosen_options, method_order
from excessmtl.lab.data.tasks import PLAIN
from excessmtl.lab.runs.config import SINGLE

COLOURS = (
    ("#0067a8", "#4ea3e6"),
    ("#d55e00", "#ff8a3d"),
    ("#2b2f36", "#e6e9ed"),
    ("#008a63", "#3fc79a"),
    ("#c4609a", "#ea97c6"),
    ("#d18f00", "#f2bd45"),
    ("#41a3dd", "#93d3f9"),
    ("#7f5f00", "#cda75a"),
    ("#868c94", "#8f98a3"),
    ("#7b4fc9", "#b79bff"),
    ("#8a9a00", "#c6d64c"),
    ("#a8323e", "#f27f88"),
)
"""On a light and on a dark background, after Okabe and Ito."""
_MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "x": "x",
    "triangle-up": "^",
    "triangle-down": "v",
    "cross": "P",
    "star": "X",
    "star-diamond": "*",
    "circle-open": "",
}
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


@dataclass(frozen=True)
class Look:
    """Colour by its number in `COLOURS`; marker and line by their names in plotly."""

    colour: int
    symbol: str
    dash: str = "solid"

    @property
    def in_matplotlib(self) -> dict[str, str]:
        """The same as arguments of `plot`, on a light background."""
        return {"color": COLOURS[self.colour][0], "marker": _MARKERS[self.symbol], "ls": _LINES[self.dash]}


_KNOWN: tuple[tuple[str, Mapping[str, Any], Look], ...] = (
    ("excess + robust", {}, Look(9, "circle")),
    ("excess", {}, Look(0, "circle")),
    ("excess", {"estimator": "paper"}, Look(1, "square")),
    ("excess", {"estimator": "paper", "normalize": "initial"}, Look(1, "diamond", "dash")),
    ("uniform", {}, Look(2, "x")),
    ("gradnorm", {}, Look(3, "triangle-up")),
    ("mgda", {}, Look(4, "triangle-down")),
    ("groupdro", {}, Look(5, "cross")),
    ("imtl", {}, Look(6, "star")),
    ("moml", {}, Look(7, "star-diamond")),
    (SINGLE, {}, Look(8, "circle-open", "dot")),
)
"""A method with these options looks the same in every picture."""
_DASHES = ("dash", "dot", "dashdot")
_SYMBOLS = ("hexagon", "pentagon", "star-square", "bowtie", "hourglass", "diamond-tall")


def known_look(method: str, options: Mapping[str, Any], loss: str = PLAIN) -> Look | None:
    """The look of a method that is drawn often, else None."""
    method = method if loss == PLAIN else f"{method} + {loss}"
    given = {key: value for key, value in chosen_options(options).items() if key != "warmup_steps"}
    return next((look for name, own, look in _KNOWN if name == method and own == given), None)


def looks_of(frame: pd.DataFrame) -> dict[str, Look]:
    """A look for every label of collected runs; two are alike only where there are more than two hundred labels."""
    looks: dict[str, Look] = {}
    first = frame.drop_duplicates("label").set_index("label")
    spare = map(_spare, count())
    for label in method_order(frame):
        known = known_look(first.method[label], first.options[label], first.loss[label])
        looks[label] = known if known is not None and known not in looks.values() else next(spare)
    return looks


def _spare(number: int) -> Look:
    """A look that no known method has: every colour in one dash, then in the next, then again with other symbols."""
    turn, place = divmod(number, len(COLOURS))
    symbol = _SYMBOLS[(number + turn // len(_DASHES)) % len(_SYMBOLS)]
    return Look(len(COLOURS) - 1 - place, symbol, _DASHES[turn % len(_DASHES)])


def style_sheet() -> str:
    """The colours as CSS variables `--s0`, ..., and classes `.s0`, ... that set `--key`."""
    light, dark = (" ".join(f"--s{number}: {pair[side]};" for number, pair in enumerate(COLOURS)) for side in (0, 1))
    keys = "\n".join(f".s{number} {{ --key: var(--s{number}); }}" for number in range(len(COLOURS)))
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{keys}\n"
