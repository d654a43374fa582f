"""Figures 5 to 9: scores and the weight of the clean tasks against the noise level."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from excessmtl.lab.paper.registry import (
    Drawing,
    by_method,
    canvas,
    figure,
    legend_below,
    log_scale,
    look,
    spread_heading,
    tidy,
)
from excessmtl.lab.paper.subjects import (
    COMPARED,
    MGDA,
    MOML,
    NORMALISED,
    PAPER,
    ROBUST,
    SINGLE_TASK,
    Subject,
    over_seeds,
)

_DECADES = 4
"""Errors that differ by more than this factor are drawn on a logarithmic axis."""
VALIDATED = (ROBUST, PAPER, NORMALISED, MGDA, MOML)
DENSE = tuple(name for name in COMPARED if name != NORMALISED)
"""Tasks with losses of different kinds: the paper's form is normalised there already."""
_TRENDS = ("overall_score", "clean_score", "noisy_score", "clean_weight")
_DENSE_PANELS = {
    "segmentation/pixel_accuracy": ("segmentation (noisy labels)", "pixel accuracy, %", 100.0),
    "depth/rel_error": ("depth", "relative error, %, lower is better", 100.0),
    "normals/within_11.25": ("surface normals", "within 11.25 degrees, %", 100.0),
}


@figure("multimnist", "Figure 6: scores and clean weight over noise levels, MultiMNIST", "multimnist", COMPARED)
@figure("office-home", "Figure 7: scores and clean weight over noise levels, Office-Home", "office-home", COMPARED)
@figure("sarcos", "Figure 9: errors and clean weight over noise levels, SARCOS", "sarcos", COMPARED)
@figure("clean-validation", "Figure 5: MOML, MGDA and ExcessMTL, Office-Home", "office-home", VALIDATED)
def draw_trends(subject: Subject, runs: pd.DataFrame) -> Drawing | None:
    """Scores over all tasks and over the clean ones, and the clean weight; every score and weight in the table."""
    metric = subject.setting.common_metric
    if metric is None:
        return None
    columns = {name: runs[name] for name in _TRENDS}
    columns |= {f"score_{task}": runs.scores.map(lambda own, task=task: own[task]) for task in subject.setting.tasks}
    table = over_seeds(subject, columns, metric=metric.name)
    unit = f", {metric.shown_unit}" if metric.shown_unit else ""
    label = f"{metric.name}{unit}" + ("" if metric.higher_is_better else ", lower is better")
    factor = 100.0 if metric.is_share else 1.0
    panels = {
        "overall_score": ("all tasks", label, factor),
        "clean_score": ("clean tasks", label, factor),
        "clean_weight": ("weight of the clean tasks", "", 1.0),
    }
    picture = _over_noise(subject, table, panels)
    *scores, weight = picture.axes
    for axes, column in zip(scores, ("overall_score", "clean_score"), strict=True):
        if not metric.higher_is_better and table[column].max() > _DECADES * table[column].min():
            log_scale(axes)
    weight.set_ylim(-0.03, 1.03)
    return Drawing({"": table}, {"": picture})


@figure("nyuv2", "Figure 8: segmentation, depth and normals over noise levels", "nyuv2", DENSE, reference=True)
def draw_dense(subject: Subject, runs: pd.DataFrame) -> Drawing:
    """A panel per task; in the table all metrics, also those not drawn, and the weight of the clean tasks."""
    columns = {name: runs.metrics.map(lambda own, name=name: own.get(name)) for name in runs.metrics.iloc[0]}
    table = over_seeds(subject, {**columns, "clean_weight": runs.clean_weight})
    return Drawing({"": table}, {"": _over_noise(subject, table, _DENSE_PANELS)})


def _over_noise(subject: Subject, table: pd.DataFrame, panels: Mapping[str, tuple[str, str, float]]) -> Figure:
    """A panel for each column, by its title, label and factor; bands are a standard deviation over the seeds."""
    picture = canvas(8.6, 3.6)
    all_axes = picture.subplots(1, len(panels))
    for axes, (column, (title, label, factor)) in zip(all_axes, panels.items(), strict=True):
        for shown, own in by_method(table):
            _band(axes, own, column, shown, factor)
        tidy(axes, title, "noise level", label)
    legend_below(picture, all_axes)
    spread_heading(picture, subject, table, "bands")
    return picture


def _band(axes: Axes, table: pd.DataFrame, column: str, shown: str, factor: float) -> None:
    """A method's mean over noise levels, and its spread where there is more than one seed."""
    own = table.sort_values("noise")
    if shown == SINGLE_TASK and len(own) == 1:  # trained without noise only, as a reference
        axes.axhline(factor * own[column].item(), label=shown, **{**look(shown), "marker": ""})
        return
    axes.plot(own.noise, factor * own[column], label=shown, **look(shown))
    low, high = (factor * (own[column] + sign * own[f"{column}_sd"]) for sign in (-1, 1))
    axes.fill_between(own.noise, low, high, color=look(shown)["color"], alpha=0.12, lw=0)
