"""Figures 5, 6, 7 and 9: overall score, clean score and clean weight against the noise level."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from excessmtl.analysis.measures import score_measures
from excessmtl.paper.methods import COMPARED, MGDA, MOML, NORMALISED, PAPER, ROBUST, SINGLE_TASK
from excessmtl.paper.plans import grid
from excessmtl.paper.registry import Data, RunConfigs, Scale, canvas, drawn_from_runs, save_picture, save_table
from excessmtl.paper.seeds import summary_rows
from excessmtl.paper.style import ORDER, heading, legend_below, log_scale, look, tidy
from excessmtl.paper.subjects import Subject

_DECADES = 4
"""Errors that differ by more than this factor are drawn on a logarithmic axis."""
VALIDATED = (ROBUST, PAPER, NORMALISED, MGDA, MOML)
_PANELS = {"overall_score": "all tasks", "clean_score": "clean tasks", "clean_weight": "weight of the clean tasks"}


def trend_rows(subject: Subject, methods: Sequence[str]) -> list[dict[str, object]]:
    """The table behind the picture: every score and weight by method and noise level."""
    runs = subject.of(methods)
    if runs.empty or subject.setting.common_metric is None:
        return []
    columns = {name: runs[name] for name in ("overall_score", "clean_score", "noisy_score", "clean_weight")}
    tasks = list(subject.runs.iloc[0].scores)
    columns |= {f"score_{task}": pd.Series([own[task] for own in runs.scores], index=runs.index) for task in tasks}
    metric = subject.runs.iloc[0].primary_metric[tasks[0]]
    known = {"data": subject.title, "epochs": subject.epochs, "metric": metric}
    return [{**known, **row} for row in summary_rows(runs, columns)]


def trend_picture(subject: Subject, rows: Sequence[dict[str, object]]) -> Figure:
    """Three panels over noise levels; bands are a standard deviation over the seeds."""
    picture = canvas(8.6, 3.6)
    panels = picture.subplots(1, 3)
    table = pd.DataFrame(rows)
    overall = score_measures(subject.setting)[-1]
    unit = f", {overall.unit}" if overall.unit else ""
    label = f"{table.metric.iloc[0]}{unit}" + (", lower is better" if overall.better == "lower" else "")
    for axes, (column, title) in zip(panels, _PANELS.items(), strict=True):
        score = column != "clean_weight"
        shown = [name for name in ORDER if name in set(table.method)]
        for name in shown:
            plot_band(axes, table[table.method == name], column, name, overall.factor if score else 1.0)
        tidy(axes, title, "noise level", label if score else "")
        if score and overall.better == "lower" and table[column].max() > _DECADES * table[column].min():
            log_scale(axes)
    panels[2].set_ylim(-0.03, 1.03)
    legend_below(picture, panels)
    band = "; bands: one standard deviation over seeds" if table.seeds.max() > 1 else "; one seed"
    heading(picture, f"{subject.title}; {subject.epochs} epochs{band}")
    return picture


def plot_band(axes: Axes, table: pd.DataFrame, column: str, shown: str, factor: float) -> None:
    """A method's mean over noise levels, and its spread where there is more than one seed."""
    own = table.sort_values("noise")
    if shown == SINGLE_TASK and len(own) == 1:  # trained without noise only, as a reference
        axes.axhline(factor * own[column].item(), label=shown, **{**look(shown), "marker": ""})
        return
    axes.plot(own.noise, factor * own[column], label=shown, **look(shown))
    low, high = (factor * (own[column] + sign * own[f"{column}_sd"]) for sign in (-1, 1))
    axes.fill_between(own.noise, low, high, color=look(shown)["color"], alpha=0.12, lw=0)


def _register(name: str, summary: str, about: str, methods: Sequence[str]) -> None:
    def runs(scale: Scale, data: Data) -> RunConfigs:
        return grid(about, scale, data, methods)

    @drawn_from_runs(name, summary, about, runs)
    def draw(subject: Subject, stem: str, out: Path) -> list[Path]:
        rows = trend_rows(subject, methods)
        return save_table(rows, out, stem) + save_picture(trend_picture(subject, rows), out, stem) if rows else []


_register("multimnist", "Figure 6: scores and clean weight over noise levels, MultiMNIST", "multimnist", COMPARED)
_register("office-home", "Figure 7: scores and clean weight over noise levels, Office-Home", "office-home", COMPARED)
_register("sarcos", "Figure 9: errors and clean weight over noise levels, SARCOS", "sarcos", COMPARED)
_register("clean-validation", "Figure 5: MOML, MGDA and ExcessMTL, Office-Home", "office-home", VALIDATED)
