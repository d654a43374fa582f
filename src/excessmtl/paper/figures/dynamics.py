"""Figure 3: the weight of the clean task and both accuracies while MultiMNIST trains at noise 0.8."""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from excessmtl.paper.collected import epochs_of, has_epochs, has_steps, steps_of
from excessmtl.paper.methods import COMPARED
from excessmtl.paper.plans import grid
from excessmtl.paper.registry import Data, RunConfigs, Scale, canvas, drawn_from_runs, save_picture, save_table
from excessmtl.paper.style import ORDER, heading, legend_below, look, tidy
from excessmtl.paper.subjects import Subject

NOISE = 0.8
_POINTS = 100
"""Points of a weight curve: each is the mean over its stretch of steps."""


def weight_course(run: pd.Series) -> pd.DataFrame:
    """The clean tasks' share of the weights over training: columns epoch (counted in parts of epochs), clean_weight."""
    weights = steps_of(run).weights
    clean = [task for task in weights if task not in run.noisy_tasks]
    share = weights[clean].sum(axis=1) / weights.sum(axis=1)
    steps = share.index.to_series()
    stretches = steps * min(_POINTS, len(share)) // len(share)
    epoch = (steps + 0.5) * int(run.epochs) / len(share)
    return pd.DataFrame({"epoch": epoch.groupby(stretches).mean(), "clean_weight": share.groupby(stretches).mean()})


def accuracy_course(run: pd.Series) -> pd.DataFrame:
    """Test scores after every epoch, clean and noisy tasks."""
    table = epochs_of(run)
    scores = {task: table[f"test/{task}/{metric}"] for task, metric in run.primary_metric.items()}
    groups = {"clean_score": [], "noisy_score": []}  # type: dict[str, list[pd.Series]]
    for task, values in scores.items():
        groups["noisy_score" if task in run.noisy_tasks else "clean_score"].append(values)
    means = {name: sum(own) / len(own) for name, own in groups.items() if own}
    return pd.DataFrame({"epoch": table.epoch + 1, **means})


def _courses(subject: Subject) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    runs = [run for _, run in subject.of(COMPARED, NOISE).iterrows() if has_steps(run) and has_epochs(run)]
    if not runs:
        return None
    known = [{"data": subject.title, "method": run.shown, "seed": run.seed, "noise": NOISE} for run in runs]
    weights = [weight_course(run).assign(**row) for run, row in zip(runs, known, strict=True)]
    accuracies = [accuracy_course(run).assign(**row) for run, row in zip(runs, known, strict=True)]
    return pd.concat(weights, ignore_index=True), pd.concat(accuracies, ignore_index=True)


def _runs(scale: Scale, data: Data) -> RunConfigs:
    return grid("multimnist", scale, data, COMPARED, noise=(NOISE,))


@drawn_from_runs("dynamics", "Figure 3: weights and accuracy over training, noise 0.8", "multimnist", _runs)
def draw(subject: Subject, stem: str, out: Path) -> list[Path]:
    """Draw and tabulate."""
    courses = _courses(subject)
    if courses is None:
        return []
    weights, accuracies = courses
    tables = save_table(weights.to_dict("records"), out, f"{stem}_weights")
    tables += save_table(accuracies.to_dict("records"), out, f"{stem}_accuracy")
    return tables + save_picture(_picture(subject, weights, accuracies), out, stem)


def _picture(subject: Subject, weights: pd.DataFrame, accuracies: pd.DataFrame) -> Figure:
    picture = canvas(8.6, 3.6)
    panels = picture.subplots(1, 3)
    _lines(panels[0], weights, "clean_weight", 1, marked=False)
    _lines(panels[1], accuracies, "clean_score", 100, marked=True)
    _lines(panels[2], accuracies, "noisy_score", 100, marked=True)
    panels[0].set_ylim(-0.03, 1.03)
    tidy(panels[0], "weight of the clean task", "epoch", "")
    tidy(panels[1], "clean task", "epoch", "test accuracy, %")
    tidy(panels[2], "noisy task", "epoch", "")
    legend_below(picture, panels[1:])
    seeds = accuracies.seed.nunique()
    told = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
    heading(picture, f"{subject.title}; noise {NOISE:g}; {told}")
    return picture


def _lines(axes: Axes, table: pd.DataFrame, column: str, factor: float, marked: bool) -> None:
    """Each method's mean over the seeds."""
    for shown in (name for name in ORDER if name in set(table.method)):
        mean = table[table.method == shown].groupby("epoch")[column].mean()
        style = {**look(shown), "ms": 3.5} if marked else {**look(shown), "marker": ""}
        axes.plot(mean.index, factor * mean, label=shown, **style)
