"""Figure 4: the test losses of both MultiMNIST tasks for all methods, without noise and at noise 0.8.

Dashed lines are single-task networks. The test labels are clean, as everywhere in the paper.
"""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from excessmtl.paper.methods import COMPARED, SINGLE_TASK
from excessmtl.paper.plans import grid
from excessmtl.paper.registry import Data, RunConfigs, Scale, canvas, drawn_from_runs, save_picture, save_table
from excessmtl.paper.seeds import summary_rows
from excessmtl.paper.style import ORDER, heading, legend_below, look, tidy
from excessmtl.paper.subjects import Subject

NOISE = (0.0, 0.8)
_CLEAN, _NOISY = "clean_loss", "noisy_loss"


def profile_rows(subject: Subject) -> list[dict[str, Any]]:
    """The test losses by method and noise level; several clean tasks would be averaged."""
    runs = subject.of((*COMPARED, SINGLE_TASK))
    runs = runs[runs.noise.isin(NOISE)]
    if runs.empty:
        return []

    def losses(noisy: bool) -> pd.Series:
        means = [
            pd.Series([run.metrics[f"{task}/loss"] for task in run.scores if (task in run.noisy_tasks) == noisy]).mean()
            for _, run in runs.iterrows()
        ]
        return pd.Series(means, index=runs.index)

    rows = summary_rows(runs, {_CLEAN: losses(False), _NOISY: losses(True)})
    return [{"data": subject.title, "epochs": subject.epochs, **row} for row in rows]


def _runs(scale: Scale, data: Data) -> RunConfigs:
    return grid("multimnist", scale, data, (*COMPARED, SINGLE_TASK), noise=NOISE)


@drawn_from_runs("loss-profile", "Figure 4: losses of all methods and of single-task networks", "multimnist", _runs)
def draw(subject: Subject, stem: str, out: Path) -> list[Path]:
    """Draw and tabulate."""
    rows = profile_rows(subject)
    if not rows:
        return []
    return save_table(rows, out, stem) + save_picture(_picture(subject, pd.DataFrame(rows)), out, stem)


def _picture(subject: Subject, table: pd.DataFrame) -> Figure:
    picture = canvas(7.6, 4.2)
    panels = picture.subplots(1, 2)
    for axes, noise in zip(panels, NOISE, strict=True):
        _panel(axes, table[table.noise == noise])
        labels = "no noise" if noise == 0 else f"noise {noise:g} in task 2"
        tidy(axes, labels, "test loss of task 1", "test loss of task 2" if noise == 0 else "")
    legend_below(picture, panels)
    spread = "; bars: one standard deviation over seeds" if table.seeds.max() > 1 else "; one seed"
    heading(picture, f"{subject.title}; {subject.epochs} epochs{spread}")
    return picture


def _panel(axes: Axes, table: pd.DataFrame) -> None:
    for shown in (name for name in ORDER if name in set(table.method)):
        own = table[table.method == shown].iloc[0]
        if shown == SINGLE_TASK:
            line = {"color": look(shown)["color"], "ls": "--", "lw": 1.2}
            axes.axvline(own[_CLEAN], label=shown, **line)
            axes.axhline(own[_NOISY], **line)
            continue
        style = {**look(shown), "ls": "", "ms": 8, "mfc": "none", "mew": 1.6}
        axes.errorbar(
            own[_CLEAN], own[_NOISY], yerr=own[f"{_NOISY}_sd"], xerr=own[f"{_CLEAN}_sd"], label=shown, **style
        )
