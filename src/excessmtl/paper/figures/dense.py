"""Figure 8: the three tasks of NYUv2 against the noise level in the segmentation labels."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from excessmtl.paper.figures.trends import plot_band
from excessmtl.paper.methods import COMPARED, NORMALISED, SINGLE_TASK
from excessmtl.paper.plans import grid
from excessmtl.paper.registry import Data, RunConfigs, Scale, canvas, drawn_from_runs, save_picture, save_table
from excessmtl.paper.seeds import summary_rows
from excessmtl.paper.style import ORDER, heading, legend_below, tidy
from excessmtl.paper.subjects import Subject

SHOWN = tuple(name for name in COMPARED if name != NORMALISED)
"""Tasks with losses of different kinds: the paper's form is normalised here already."""
_PANELS = {
    "segmentation/pixel_accuracy": ("segmentation (noisy labels)", "pixel accuracy, %", 100.0),
    "depth/rel_error": ("depth", "relative error, %, lower is better", 100.0),
    "normals/within_11.25": ("surface normals", "within 11.25 degrees, %", 100.0),
}


def dense_rows(subject: Subject) -> list[dict[str, object]]:
    """All metrics, also those not drawn, and the weight of the clean tasks."""
    runs = subject.of((*SHOWN, SINGLE_TASK))
    names = list(runs.metrics.iloc[0])
    columns = {name: pd.Series([own.get(name) for own in runs.metrics], index=runs.index) for name in names}
    columns["clean_weight"] = runs.clean_weight
    return [{"data": subject.title, "epochs": subject.epochs, **row} for row in summary_rows(runs, columns)]


def dense_picture(subject: Subject, rows: Sequence[dict[str, object]]) -> Figure:
    """A panel per task."""
    picture = canvas(8.6, 3.6)
    panels = picture.subplots(1, 3)
    table = pd.DataFrame(rows)
    for axes, (column, (title, label, factor)) in zip(panels, _PANELS.items(), strict=True):
        for name in (name for name in ORDER if name in set(table.method)):
            plot_band(axes, table[table.method == name], column, name, factor)
        tidy(axes, title, "noise level", label)
    legend_below(picture, panels)
    band = "; bands: one standard deviation over seeds" if table.seeds.max() > 1 else "; one seed"
    heading(picture, f"{subject.title}; {subject.epochs} epochs{band}")
    return picture


def _runs(scale: Scale, data: Data) -> RunConfigs:
    single = grid("nyuv2", scale, data, (SINGLE_TASK,), noise=(0.0,)) if scale == "paper" else []
    return [*grid("nyuv2", scale, data, SHOWN), *single]


@drawn_from_runs("nyuv2", "Figure 8: segmentation, depth and normals over noise levels", "nyuv2", _runs)
def draw(subject: Subject, stem: str, out: Path) -> list[Path]:
    """Draw and tabulate."""
    if subject.of(SHOWN).empty:
        return []
    rows = dense_rows(subject)
    return save_table(rows, out, stem) + save_picture(dense_picture(subject, rows), out, stem)
