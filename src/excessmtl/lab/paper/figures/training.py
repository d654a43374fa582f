"""Figures 2, 3 and 4: what happens while MultiMNIST trains with noise, and the losses that it ends with.

Figure 2, estimated and true excess risks at noise 0.6: as in the paper, the true excess risk is taken to be the current
training loss minus the converged one, here the mean over the run's last epoch; both are on noisy labels for the noisy
task. So it ends at zero by construction. Estimates are up to a constant: the picture scales each run's by one factor
for all its tasks.

Figure 3, the weight of the clean task and both accuracies at noise 0.8. Figure 4, the test losses of both tasks for all
methods, on clean labels as everywhere in the paper; dashed lines are single-task networks.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from excessmtl.lab.compare.collect import read_epochs, read_steps, thinned
from excessmtl.lab.compare.palette import COLOURS
from excessmtl.lab.paper.registry import (
    SMALL,
    Drawing,
    by_method,
    canvas,
    figure,
    heading,
    legend_below,
    look,
    spread_heading,
    tidy,
)
from excessmtl.lab.paper.subjects import COMPARED, PAPER, ROBUST, SINGLE_TASK, Subject, over_seeds

RISK_NOISE, COURSE_NOISE, LOSS_NOISE = 0.6, 0.8, (0.0, 0.8)
"""The noise levels of Figures 2, 3 and 4."""
ESTIMATORS = (PAPER, ROBUST)
_BINS, _POINTS = 40, 100
"""Points of a curve in Figures 2 and 3: each is the mean over its stretch of steps."""
_COLOURS = {False: COLOURS[0][0], True: COLOURS[1][0]}
_PANELS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "clean_weight": ("weight of the clean task", "", 1, {"marker": ""}),
    "clean_score": ("clean task", "test accuracy, %", 100, {"ms": 3.5}),
    "noisy_score": ("noisy task", "", 100, {"ms": 3.5}),
}
_CLEAN, _NOISY = "clean_loss", "noisy_loss"


def course(run: pd.Series) -> pd.DataFrame:
    """True and estimated excess risk over training, averaged over stretches of it: a row per task and stretch."""
    steps = read_steps(run.steps_path)
    length = len(steps.losses)
    epoch = pd.DataFrame({"middle": (np.arange(length) + 0.5) * int(run.epochs) / length})
    middle, losses, risks = (thinned(values, _BINS) for values in (epoch, steps.losses, steps.excess_risks))
    last_epoch = steps.losses.iloc[-max(length // int(run.epochs), 1) :]
    above = losses - last_epoch.mean()
    tables = []
    for task in losses:
        known = {"task": task, "noisy": task in run.noisy_tasks, "epoch": middle["middle"]}
        tables.append(pd.DataFrame({**known, "loss": losses[task], "true": above[task], "estimated": risks[task]}))
    return pd.concat(tables, ignore_index=True)


def agreement(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Per task: Pearson correlation, and the factor that fits best (through the origin) from estimated to true."""
    rows = []
    for task, own in table.dropna(subset=["estimated"]).groupby("task", sort=False):
        correlation = np.corrcoef(own.true, own.estimated)[0, 1] if own.estimated.std() > 0 else np.nan
        rows.append({"task": task, "correlation": float(correlation), "slope": _factor(own)})
    return rows


def _factor(table: pd.DataFrame) -> float:
    square = float((table.estimated**2).sum())
    return float((table.true * table.estimated).sum()) / square if square else np.nan


@figure(
    "excess-risk",
    "Figure 2: estimated against true excess risk over training, noise 0.6",
    "multimnist",
    ESTIMATORS,
    noise=[RISK_NOISE],
    files=["steps_path"],
)
def draw_excess_risks(subject: Subject, runs: pd.DataFrame) -> Drawing:
    """The picture, a table of the courses, and one of how well they agree."""
    courses = []
    for _, run in runs.iterrows():
        own = course(run).assign(method=run.shown, seed=run.seed)
        courses.append(own.assign(scaled=own.estimated * _factor(own.dropna(subset=["estimated"]))))
    table = pd.concat(courses, ignore_index=True)
    rows = [
        {"data": subject.title, "method": shown, "seed": seed, "noise": RISK_NOISE, **row}
        for (shown, seed), own in table.groupby(["method", "seed"], sort=False)
        for row in agreement(own)
    ]
    return Drawing({"_course": table, "": rows}, {"": _risk_picture(subject, table)})


def _risk_picture(subject: Subject, table: pd.DataFrame) -> Figure:
    picture = canvas(8.6, 3.5)
    shown = [name for name in ESTIMATORS if name in set(table.method)]
    panels = picture.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, method in zip(panels, shown, strict=True):
        own, correlations = table[table.method == method], []
        for noisy, colour in _COLOURS.items():
            kind = "noisy" if noisy else "clean"
            mean = own[own.noisy == noisy].groupby(["task", "epoch"]).mean(numeric_only=True).reset_index()
            correlations.append(f"{kind} {agreement(mean)[0]['correlation']:.2f}")
            mean = mean.groupby("epoch").mean(numeric_only=True)
            axes.plot(mean.index, mean.true, color=colour, lw=1.8, label=f"{kind} task: loss minus converged loss")
            axes.plot(mean.index, mean.scaled, color=colour, lw=1.4, ls="--", label=f"{kind} task: estimate, scaled")
        told = ", ".join(correlations)
        tidy(axes, f"{method}\ncorrelation: {told}", "epoch", "excess risk" if axes is panels[0] else "")
    panels[0].legend(fontsize=SMALL)
    heading(picture, f"{subject.title}; noise {RISK_NOISE:g}")
    return picture


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


@figure(
    "dynamics",
    "Figure 3: weights and accuracy over training, noise 0.8",
    "multimnist",
    COMPARED,
    noise=[COURSE_NOISE],
    files=["steps_path", "metrics_path"],
)
def draw_dynamics(subject: Subject, runs: pd.DataFrame) -> Drawing:
    """A curve per method, the mean over its seeds."""
    weights, accuracies = [], []
    for _, run in runs.iterrows():
        known = {"data": subject.title, "method": run.shown, "seed": run.seed, "noise": COURSE_NOISE}
        weights.append(weight_course(run).assign(**known))
        accuracies.append(accuracy_course(run).assign(**known))
    tables = {"_weights": pd.concat(weights), "_accuracy": pd.concat(accuracies)}
    return Drawing(tables, {"": _course_picture(subject, *tables.values())})


def _course_picture(subject: Subject, weights: pd.DataFrame, accuracies: pd.DataFrame) -> Figure:
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
    heading(picture, f"{subject.title}; noise {COURSE_NOISE:g}; {told}")
    return picture


@figure(
    "loss-profile",
    "Figure 4: losses of all methods and of single-task networks",
    "multimnist",
    [*COMPARED, SINGLE_TASK],
    noise=LOSS_NOISE,
)
def draw_losses(subject: Subject, runs: pd.DataFrame) -> Drawing:
    """A panel per noise level, a point per method."""
    groups = {_CLEAN: subject.setting.clean_tasks, _NOISY: subject.setting.noisy_tasks}
    losses = {
        name: runs.metrics.map(lambda own, tasks=tasks: pd.Series([own[f"{task}/loss"] for task in tasks]).mean())
        for name, tasks in groups.items()
    }
    table = over_seeds(subject, losses)
    picture = canvas(7.6, 4.2)
    panels = picture.subplots(1, 2)
    for axes, noise in zip(panels, LOSS_NOISE, strict=True):
        _panel(axes, table[table.noise == noise])
        labels = "no noise" if noise == 0 else f"noise {noise:g} in task 2"
        tidy(axes, labels, "test loss of task 1", "test loss of task 2" if noise == 0 else "")
    legend_below(picture, panels)
    spread_heading(picture, subject, table, "bars")
    return Drawing({"": table}, {"": picture})


def _panel(axes: Axes, table: pd.DataFrame) -> None:
    for shown, rows in by_method(table):
        own = rows.iloc[0]
        if shown == SINGLE_TASK:
            line = {"color": look(shown)["color"], "ls": "--", "lw": 1.2}
            axes.axvline(own[_CLEAN], label=shown, **line)
            axes.axhline(own[_NOISY], **line)
            continue
        style = {**look(shown), "ls": "", "ms": 8, "mfc": "none", "mew": 1.6}
        spread = {"xerr": own[f"{_CLEAN}_sd"], "yerr": own[f"{_NOISY}_sd"]}
        axes.errorbar(own[_CLEAN], own[_NOISY], label=shown, **spread, **style)
