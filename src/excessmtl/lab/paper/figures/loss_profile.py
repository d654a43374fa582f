"""Figure 4: the test losses of both MultiMNIST tasks for all methods, without noise and at noise 0.8.

Dashed lines are single-task networks. The test labels are clean, as everywhere in the paper.
"""

from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from excessmtl.lab.paper.methods import COMPARED, SINGLE_TASK
from excessmtl.lab.paper.plans import grid
from excessmtl.lab.paper.registry import Drawing, canvas, drawn_from_runs
from excessmtl.lab.paper.style import by_method, legend_below, look, spread_heading, tidy
from excessmtl.lab.paper.subjects import Subject, over_seeds

NOISE = (0.0, 0.8)
SHOWN = (*COMPARED, SINGLE_TASK)
_CLEAN, _NOISY = "clean_loss", "noisy_loss"


@drawn_from_runs(
    "loss-profile",
    "Figure 4: losses of all methods and of single-task networks",
    "multimnist",
    partial(grid, "multimnist", methods=SHOWN, noise=NOISE),
)
def draw(subject: Subject) -> Drawing | None:
    """A panel per noise level, a point per method."""
    runs = subject.of(SHOWN)
    runs = runs[runs.noise.isin(NOISE)]
    if runs.empty:
        return None
    groups = {_CLEAN: subject.setting.clean_tasks, _NOISY: subject.setting.noisy_tasks}
    losses = {
        name: runs.metrics.map(lambda own, tasks=tasks: pd.Series([own[f"{task}/loss"] for task in tasks]).mean())
        for name, tasks in groups.items()
    }
    table = over_seeds(subject, losses)
    picture = canvas(7.6, 4.2)
    panels = picture.subplots(1, 2)
    for axes, noise in zip(panels, NOISE, strict=True):
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
