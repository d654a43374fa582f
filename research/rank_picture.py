"""Critical-difference diagrams: mean ranks on a line, a bar over methods that cannot be told apart."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from excessmtl.lab.compare.palette import COLOURS
from excessmtl.lab.compare.ranks import Ranks

_OURS, _OTHER = COLOURS[0][0], COLOURS[2][0]


def draw_ranks(ranks: Mapping[str, Ranks], highlighted: str | None) -> Figure:
    """A diagram for each group of tasks, below each other; `highlighted` is drawn in colour."""
    rows = [0.9 + 0.17 * (len(own.mean) + 1) / 2 + 0.12 * len(own.cliques) for own in ranks.values()] or [1.0]
    figure = Figure(figsize=(8, sum(rows) + 0.3), layout="constrained")
    axes = figure.subplots(max(1, len(ranks)), squeeze=False, height_ratios=rows)[:, 0]
    for axis, (title, own) in zip(axes, ranks.items(), strict=False):
        _draw(axis, title, own, highlighted)
    return figure


def _draw(axis: Axes, title: str, ranks: Ranks, highlighted: str | None) -> None:
    count = len(ranks.mean)
    half = (count + 1) // 2
    below = 1.2 + 0.5 * len(ranks.cliques)
    axis.set(xlim=(0.2, count + 0.8), ylim=(-below - half, 1.6), yticks=[], title=f"{title}: mean rank")
    axis.xaxis.set_ticks_position("top")
    axis.set_xticks(range(1, count + 1))
    axis.spines[["left", "right", "bottom"]].set_visible(False)
    for place, (name, rank) in enumerate(ranks.mean.items()):
        left = place < half
        height = -below - (place if left else count - 1 - place)
        end, align = (0.9, "right") if left else (count + 0.1, "left")
        style: dict[str, Any] = (
            {"color": _OURS, "weight": "bold"} if name == highlighted else {"color": _OTHER, "weight": "normal"}
        )
        axis.plot([rank, rank, end], [1.6, height, height], lw=1.0, color=style["color"])
        axis.text(end, height, f" {name} ({rank:.2f}) ", ha=align, va="center", fontsize=8, **style)
    for number, group in enumerate(ranks.cliques):
        ends = [ranks.mean[group[0]] - 0.05, ranks.mean[group[-1]] + 0.05]
        axis.plot(ends, [0.6 - 0.5 * number] * 2, lw=3, color=_OTHER, solid_capstyle="round")
    axis.set_xlim(-0.35 * count**0.5, count + 1 + 0.35 * count**0.5)
