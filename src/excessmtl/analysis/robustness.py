"""How robust methods are: scores of clean, noisy and all tasks, and of the worst clean one, at either choice of epoch.

Every function takes runs as `collect` gives them. Scores are signed so that higher is better: accuracies in percent,
errors times -1.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid

from excessmtl.analysis.measures import number
from excessmtl.analysis.regret import Group, clean_tasks, regrets_of
from excessmtl.analysis.settings import settings
from excessmtl.training.config import SINGLE

MEASURES = ("clean", "noisy", "overall", "worst_clean")
LAST, CHOSEN = "last", "chosen"
EPOCHS = (LAST, CHOSEN)
_ALL = Group("overall", lambda run: list(run["scores"]), 0.5, 3.0)
_CLEAN = Group("clean", clean_tasks, 0.3, 3.0)
NO_REGRET = (_CLEAN, _ALL)
"""How far behind the best rival is tolerated."""
UNDOMINATED = (_CLEAN, Group("overall", lambda run: list(run["scores"]), 0.3, 3.0))
"""A rival that is further ahead in both dominates."""
_BLOCK = ["setting", "noise"]


def at_epoch(frame: pd.DataFrame, epoch: str) -> pd.DataFrame:
    """The runs with the test scores of the last epoch, or of the one that the validation split chooses.

    Runs that recorded no choice are left out of the latter.
    """
    if epoch == LAST:
        return frame
    known = frame[[isinstance(scores, dict) for scores in frame["chosen_scores"]]]
    return known.assign(scores=known["chosen_scores"]).reset_index(drop=True)


def scores_by_run(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per run and choice of the epoch: setting, noise, label, seed, epoch and `MEASURES`.

    Settings whose tasks have different metrics have no means over tasks and are left out.
    """
    rows = []
    for epoch in EPOCHS:
        for setting in settings(at_epoch(frame, epoch)):
            metric = setting.common_metric
            if metric is None:
                continue
            sign = (100 if metric.is_share else 1) * (1 if metric.higher_is_better else -1)
            for run in setting.runs.to_dict("records"):
                own = {task: sign * number(score) for task, score in run["scores"].items()}
                groups = {"clean": setting.clean_tasks, "noisy": setting.noisy_tasks, "overall": setting.tasks}
                means = {
                    name: float(np.mean([own[task] for task in tasks] or [math.nan])) for name, tasks in groups.items()
                }
                worst = float(np.min([own[task] for task in setting.clean_tasks] or [math.nan]))
                about = {"setting": setting.name, "noise": run["noise"], "label": run["label"], "method": run["method"]}
                rows.append({**about, "seed": run["seed"], "epoch": epoch, **means, "worst_clean": worst})
    columns = ["setting", "noise", "label", "method", "seed", "epoch", *MEASURES]
    return pd.DataFrame(rows, columns=columns)


def comparisons(scores: pd.DataFrame, measure: str, epoch: str = LAST) -> pd.DataFrame:
    """A row per setting and noise level, a column per method: the mean score over the seeds.

    Single-task networks take no part. NaN: a run has diverged. Methods that some comparison lacks, and comparisons in
    which nobody has such a score, are left out.
    """
    own = scores[(scores["epoch"] == epoch) & (scores["method"] != SINGLE)]
    run_at_all = own.groupby([*_BLOCK, "label"]).size().unstack("label")
    everywhere = [label for label in run_at_all if run_at_all[label].notna().all()]
    means = own.groupby([*_BLOCK, "label"])[measure].agg(lambda values: values.mean(skipna=False)).unstack("label")
    found: pd.DataFrame = means[everywhere].dropna(how="all")
    return found


def noise_areas(scores: pd.DataFrame, measure: str, epoch: str = LAST) -> pd.DataFrame:
    """A row per setting, a column per method: the area under the curve of the score over the noise, per unit of noise.

    Only settings with at least two levels; the mean over the seeds.
    """
    table = comparisons(scores, measure, epoch)
    rows = {}
    for setting, own in table.groupby(level="setting"):
        levels = own.index.get_level_values("noise").to_numpy()
        if len(levels) > 1:
            width = levels[-1] - levels[0]
            rows[setting] = {label: float(trapezoid(own[label], levels)) / width for label in own}
    return pd.DataFrame.from_dict(rows, orient="index")


def judged(frame: pd.DataFrame, groups: Sequence[Group], method: str | None = None) -> pd.DataFrame:
    """The regret table of a method (None: the default) by the tolerances of `groups`, against other methods only."""
    regrets = regrets_of(frame, method, groups)
    if regrets is None:
        return pd.DataFrame()
    table = regrets.table
    return table[table["rival"].isin(set(frame["label"]))].reset_index(drop=True)


def dominating(frame: pd.DataFrame, method: str | None = None) -> pd.DataFrame:
    """Setting, noise and rival where a rival is better on clean tasks *and* overall, beyond the tolerance in both."""
    table = judged(frame, UNDOMINATED, method)
    if table.empty:
        return pd.DataFrame(columns=[*_BLOCK, "rival"])
    beyond = (
        table.assign(beyond=~table["within"].astype(bool)).groupby([*_BLOCK, "rival"])["beyond"].agg(["sum", "size"])
    )
    found: pd.DataFrame = beyond[(beyond["sum"] == 2) & (beyond["size"] == 2)].reset_index()[[*_BLOCK, "rival"]]
    return found


def regretted(frame: pd.DataFrame, method: str | None = None) -> tuple[pd.DataFrame, int]:
    """The comparisons in which a rival is proved to be ahead by more than the tolerance, and the number of settings.

    A setting here is a setting at one noise level, judged once for clean tasks and once for all.
    """
    table = judged(frame, NO_REGRET, method)
    if table.empty:
        return table, 0
    return table[~table["within"].astype(bool)].reset_index(drop=True), len(table.drop_duplicates([*_BLOCK, "measure"]))
