"""Figure 2: estimated and true excess risks while MultiMNIST trains at noise 0.6, with both estimators.

As in the paper, the true excess risk is taken to be the current training loss minus the converged one, here the mean
over the run's last epoch; both are on noisy labels for the noisy task. So it ends at zero by construction. What the
losses are above those of single-task networks (also in their last epoch) is in the table. Estimates are up to
a constant: the picture scales each run's by one factor for all its tasks.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from excessmtl.analysis.palette import COLOURS
from excessmtl.paper.collected import has_steps, steps_of
from excessmtl.paper.methods import PAPER, ROBUST, SINGLE_TASK
from excessmtl.paper.plans import grid
from excessmtl.paper.registry import Data, RunConfigs, Scale, canvas, drawn_from_runs, save_picture, save_table
from excessmtl.paper.style import SMALL, heading, tidy
from excessmtl.paper.subjects import Subject

NOISE = 0.6
ESTIMATORS = (PAPER, ROBUST)
_BINS = 40
_COLOURS = {False: COLOURS[0][0], True: COLOURS[1][0]}


def course(run: pd.Series) -> pd.DataFrame:
    """True and estimated excess risk over training, averaged over stretches of it: a row per task and stretch."""
    steps = steps_of(run)
    length = len(steps.losses)
    bins = np.arange(length) * min(_BINS, length) // length
    middle = pd.Series((np.arange(length) + 0.5) * int(run.epochs) / length).groupby(bins).mean()
    converged = converged_losses(run)
    tables = []
    for task in steps.losses:
        loss, risk = (column[task].groupby(bins).mean() for column in (steps.losses, steps.excess_risks))
        noisy = task in run.noisy_tasks
        row = {"task": task, "noisy": noisy, "epoch": middle, "loss": loss, "true": loss - converged[task]}
        tables.append(pd.DataFrame({**row, "estimated": risk}))
    return pd.concat(tables, ignore_index=True)


def converged_losses(run: pd.Series) -> pd.Series:
    """Mean training loss of each task over the last epoch."""
    losses = steps_of(run).losses
    return losses.iloc[-max(len(losses) // int(run.epochs), 1) :].mean()


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


def runs(scale: Scale, data: Data) -> RunConfigs:
    """Both estimators, and the single-task networks."""
    return grid("multimnist", scale, data, (*ESTIMATORS, SINGLE_TASK), noise=(NOISE,))


@drawn_from_runs(
    "excess-risk", "Figure 2: estimated against true excess risk over training, noise 0.6", "multimnist", runs
)
def draw(subject: Subject, stem: str, out: Path) -> list[Path]:
    """The picture, a table of the courses, and one of how well they agree."""
    courses = _courses(subject)
    if not courses:
        return []
    table = pd.concat(courses, ignore_index=True)
    rows = [
        {"data": subject.title, "method": shown, "seed": seed, "noise": NOISE, **row}
        for (shown, seed), own in table.groupby(["method", "seed"], sort=False)
        for row in agreement(own)
    ]
    tables = save_table(table.to_dict("records"), out, f"{stem}_course") + save_table(rows, out, stem)
    return tables + save_picture(_picture(subject, table), out, stem)


def _courses(subject: Subject) -> list[pd.DataFrame]:
    alone = {run.seed: converged_losses(run) for _, run in subject.of(SINGLE_TASK, NOISE).iterrows() if has_steps(run)}
    tables = []
    for _, run in subject.of(ESTIMATORS, NOISE).iterrows():
        if not has_steps(run):
            continue
        table = course(run).assign(method=run.shown, seed=run.seed)
        table["scaled"] = table.estimated * _factor(table.dropna(subset=["estimated"]))
        if run.seed in alone:
            table["above_single_task"] = table.loss - table.task.map(alone[run.seed])
        tables.append(table)
    return tables


def _picture(subject: Subject, table: pd.DataFrame) -> Figure:
    picture = canvas(8.6, 3.5)
    shown = [name for name in ESTIMATORS if name in set(table.method)]
    panels = picture.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, method in zip(panels, shown, strict=True):
        own = table[table.method == method]
        for noisy, colour in _COLOURS.items():
            name = "noisy task" if noisy else "clean task"
            mean = own[own.noisy == noisy].groupby("epoch")[["true", "scaled"]].mean()
            axes.plot(mean.index, mean.true, color=colour, lw=1.8, label=f"{name}: loss minus converged loss")
            axes.plot(mean.index, mean.scaled, color=colour, lw=1.4, ls="--", label=f"{name}: estimate, scaled")
        told = ", ".join(_correlation(own, noisy) for noisy in _COLOURS)
        tidy(axes, f"{method}\ncorrelation: {told}", "epoch", "excess risk" if axes is panels[0] else "")
    panels[0].legend(fontsize=SMALL)
    heading(picture, f"{subject.title}; noise {NOISE:g}")
    return picture


def _correlation(table: pd.DataFrame, noisy: bool) -> str:
    """Of the seeds' mean course."""
    mean = table[table.noisy == noisy].groupby(["task", "epoch"], as_index=False)[["true", "estimated"]].mean()
    return f"{'noisy' if noisy else 'clean'} {agreement(mean)[0]['correlation']:.2f}"
