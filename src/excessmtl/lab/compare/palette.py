"""One palette for all pictures: colours that colour-blind readers can tell apart, each method with its own look."""

from dataclasses import dataclass

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


def style_sheet() -> str:
    """The colours as CSS variables `--s0`, ..., and classes `.s0`, ... that set `--key`."""
    light, dark = (" ".join(f"--s{number}: {pair[side]};" for number, pair in enumerate(COLOURS)) for side in (0, 1))
    keys = "\n".join(f".s{number} {{ --key: var(--s{number}); }}" for number in range(len(COLOURS)))
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{keys}\n"
