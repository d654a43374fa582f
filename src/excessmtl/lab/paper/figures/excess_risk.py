"""Figure 2: estimated and true excess risks while MultiMNIST trains at noise 0.6, with both estimators.

As in the paper, the true excess risk is taken to be the current training loss minus the converged one, here the mean
over the run's last epoch; both are on noisy labels for the noisy task. So it ends at zero by construction. What the
losses are above those of single-task networks (also in their last epoch) is in the table. Estimates are up to
a constant: the picture scales each run's by one factor for all its tasks.
"""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from excessmtl.lab.compare.courses import read_steps, thinned
from excessmtl.lab.compare.palette import COLOURS
from excessmtl.lab.paper.methods import PAPER, ROBUST, SINGLE_TASK
from excessmtl.lab.paper.plans import grid
from excessmtl.lab.paper.registry import Drawing, canvas, drawn_from_runs
from excessmtl.lab.paper.style import SMALL, heading, tidy
from excessmtl.lab.paper.subjects import Subject

NOISE = 0.6
ESTIMATORS = (PAPER, ROBUST)
_BINS = 40
_COLOURS = {False: COLOURS[0][0], True: COLOURS[1][0]}


def course(run: pd.Series) -> pd.DataFrame:
    """True and estimated excess risk over training, averaged over stretches of it: a row per task and stretch."""
    steps = read_steps(run.steps_path)
    length = len(steps.losses)
    epoch = pd.DataFrame({"middle": (np.arange(length) + 0.5) * int(run.epochs) / length})
    middle, losses, risks = (thinned(values, _BINS) for values in (epoch, steps.losses, steps.excess_risks))
    above = losses - converged_losses(run)
    tables = [
        pd.DataFrame({"epoch": middle["middle"], "loss": losses[task], "true": above[task], "estimated": risks[task]})
        for task in losses
    ]
    noisy = [task in run.noisy_tasks for task in losses]
    named = pd.concat(tables, keys=list(zip(losses, noisy, strict=True)), names=["task", "noisy", None])
    return named.reset_index(["task", "noisy"]).reset_index(drop=True)


def converged_losses(run: pd.Series) -> pd.Series:
    """Mean training loss of each task over the last epoch."""
    losses = read_steps(run.steps_path).losses
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


@drawn_from_runs(
    "excess-risk",
    "Figure 2: estimated against true excess risk over training, noise 0.6",
    "multimnist",
    partial(grid, "multimnist", methods=(*ESTIMATORS, SINGLE_TASK), noise=(NOISE,)),
)
def draw(subject: Subject) -> Drawing | None:
    """The picture, a table of the courses, and one of how well they agree."""
    alone, runs = (subject.of(shown, NOISE).dropna(subset="steps_path") for shown in (SINGLE_TASK, ESTIMATORS))
    if runs.empty:
        return None
    floors = {run.seed: converged_losses(run) for _, run in alone.iterrows()}
    table = pd.concat([_course(run, floors.get(run.seed)) for _, run in runs.iterrows()], ignore_index=True)
    rows = [
        {"data": subject.title, "method": shown, "seed": seed, "noise": NOISE, **row}
        for (shown, seed), own in table.groupby(["method", "seed"], sort=False)
        for row in agreement(own)
    ]
    return Drawing({"_course": table, "": rows}, {"": _picture(subject, table)})


def _course(run: pd.Series, alone: pd.Series | None) -> pd.DataFrame:
    """Also scaled, and above the losses of the networks trained alone where there are any."""
    table = course(run).assign(method=run.shown, seed=run.seed)
    table["scaled"] = table.estimated * _factor(table.dropna(subset=["estimated"]))
    return table if alone is None else table.assign(above_single_task=table.loss - table.task.map(alone))


def _picture(subject: Subject, table: pd.DataFrame) -> Figure:
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
    heading(picture, f"{subject.title}; noise {NOISE:g}")
    return picture
