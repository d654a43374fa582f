"""Figure 3: the weight of the clean task and both accuracies while MultiMNIST trains at noise 0.8."""

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from excessmtl.lab.compare.courses import read_epochs, read_steps, thinned
from excessmtl.lab.paper.methods import COMPARED
from excessmtl.lab.paper.plans import grid
from excessmtl.lab.paper.registry import Drawing, canvas, drawn_from_runs
from excessmtl.lab.paper.style import by_method, heading, legend_below, look, tidy
from excessmtl.lab.paper.subjects import Subject

NOISE = 0.8
_POINTS = 100
"""Points of a weight curve: each is the mean over its stretch of steps."""
_PANELS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "clean_weight": ("weight of the clean task", "", 1, {"marker": ""}),
    "clean_score": ("clean task", "test accuracy, %", 100, {"ms": 3.5}),
    "noisy_score": ("noisy task", "", 100, {"ms": 3.5}),
}


def weight_course(run: pd.Series) -> pd.DataFrame:
    """The clean tasks' share of the weights over training: columns epoch (counted in parts of epochs), clean_weight."""
    weights = read_steps(run.steps_path).weights
    clean = [task for task in weights if task not in run.noisy_tasks]
    epoch = (weights.index + 0.5) * int(run.epochs) / len(weights)
    course = pd.DataFrame({"epoch": epoch, "clean_weight": weights[clean].sum(axis=1) / weights.sum(axis=1)})
    return thinned(course, _POINTS)


def accuracy_course(run: pd.Series) -> pd.DataFrame:
    """Test scores after every epoch, clean and noisy tasks."""
    table = read_epochs(run.metrics_path)
    scores = pd.DataFrame({task: table[f"test/{task}/{metric}"] for task, metric in run.primary_metric.items()})
    noisy = scores.columns.isin(run.noisy_tasks)
    groups = {"clean_score": scores.loc[:, ~noisy], "noisy_score": scores.loc[:, noisy]}
    means = {name: own.mean(axis=1, skipna=False) for name, own in groups.items() if len(own.columns)}
    return pd.DataFrame({"epoch": table.epoch + 1, **means})


@drawn_from_runs(
    "dynamics",
    "Figure 3: weights and accuracy over training, noise 0.8",
    "multimnist",
    partial(grid, "multimnist", methods=COMPARED, noise=(NOISE,)),
)
def draw(subject: Subject) -> Drawing | None:
    """A curve per method, the mean over its seeds."""
    runs = subject.of(COMPARED, NOISE).dropna(subset=["steps_path", "metrics_path"])
    if runs.empty:
        return None
    weights, accuracies = [], []
    for _, run in runs.iterrows():
        known = {"data": subject.title, "method": run.shown, "seed": run.seed, "noise": NOISE}
        weights.append(weight_course(run).assign(**known))
        accuracies.append(accuracy_course(run).assign(**known))
    tables = {"_weights": pd.concat(weights), "_accuracy": pd.concat(accuracies)}
    return Drawing(tables, {"": _picture(subject, *tables.values())})


def _picture(subject: Subject, weights: pd.DataFrame, accuracies: pd.DataFrame) -> Figure:
    picture = canvas(8.6, 3.6)
    panels = picture.subplots(1, 3)
    for axes, (column, (title, label, factor, style)) in zip(panels, _PANELS.items(), strict=True):
        for shown, own in by_method(weights if column in weights else accuracies):
            mean = own.groupby("epoch")[column].mean()
            axes.plot(mean.index, factor * mean, label=shown, **{**look(shown), **style})
        tidy(axes, title, "epoch", label)
    panels[0].set_ylim(-0.03, 1.03)
    legend_below(picture, panels[1:])
    seeds = accuracies.seed.nunique()
    told = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
    heading(picture, f"{subject.title}; noise {NOISE:g}; {told}")
    return picture
