"""How robust methods are: scores of clean, noisy and all tasks, at either choice of the epoch.

Every function takes runs as `collect` gives them. Scores are signed so that higher is better: accuracies in percent,
errors times -1.
"""

import math

import numpy as np
import pandas as pd

from excessmtl.lab.compare.comparison import WORSE, WORST_FIRST
from excessmtl.lab.compare.measures import number
from excessmtl.lab.compare.regret import COLUMNS, ITSELF, Group, regrets_of
from excessmtl.lab.compare.settings import settings
from excessmtl.lab.runs.config import SINGLE

MEASURES = ("clean", "noisy", "overall")
LAST, CHOSEN = "last", "chosen"
EPOCHS = (LAST, CHOSEN)
TOLERANCES = (Group("clean", 0.3, 3.0), Group("overall", 0.5, 3.0))
"""Up to which difference two methods count as equivalent."""
_BLOCK = ["setting", "noise"]
_ROW = ["benchmark", *_BLOCK]


def at_epoch(frame: pd.DataFrame, epoch: str) -> pd.DataFrame:
    """The runs with the test scores of the last epoch, or of the one that the validation split chooses.

    Runs that recorded no choice are left out of the latter.
    """
    if epoch == LAST:
        return frame
    known = frame[[isinstance(scores, dict) for scores in frame["chosen_scores"]]]
    return known.assign(scores=known["chosen_scores"]).reset_index(drop=True)


def scores_by_run(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per run and choice of the epoch: benchmark, setting, noise, label, seed, epoch and `MEASURES`.

    Settings whose tasks have different metrics have no means over tasks and are left out.
    """
    rows = []
    for epoch in EPOCHS:
        for setting in settings(at_epoch(frame, epoch)):
            metric = setting.common_metric
            if metric is None:
                continue
            sign = (100 if metric.is_share else 1) * (1 if metric.higher_is_better else -1)
            groups = (setting.clean_tasks, setting.noisy_tasks, setting.tasks)
            about = {"benchmark": setting.benchmark, "setting": setting.name, "epoch": epoch}
            for run in setting.runs.to_dict("records"):
                own = {task: sign * number(score) for task, score in run["scores"].items()}
                means = [float(np.mean([own[task] for task in tasks] or [math.nan])) for tasks in groups]
                known = {name: run[name] for name in ("noise", "label", "method", "seed")}
                rows.append(about | known | dict(zip(MEASURES, means, strict=True)))
    return pd.DataFrame(rows, columns=["benchmark", "setting", "noise", "label", "method", "seed", "epoch", *MEASURES])


def comparisons(scores: pd.DataFrame, measure: str, epoch: str = LAST) -> pd.DataFrame:
    """A row per benchmark, setting and noise level, a column per method: the mean score over the seeds.

    Single-task networks take no part. NaN: a run has diverged. Methods that some comparison lacks, and comparisons in
    which nobody has such a score, are left out.
    """
    own = scores[(scores["epoch"] == epoch) & (scores["method"] != SINGLE)]
    run_at_all = own.groupby([*_ROW, "label"]).size().unstack("label")
    everywhere = [label for label in run_at_all if run_at_all[label].notna().all()]
    means = own.groupby([*_ROW, "label"])[measure].agg(lambda values: values.mean(skipna=False)).unstack("label")
    found: pd.DataFrame = means[everywhere].dropna(how="all")
    return found


def judgements(frame: pd.DataFrame, method: str | None = None) -> pd.DataFrame:
    """The regrets of a method (None: the default) by `TOLERANCES` against every other method, at both choices of epoch.

    The column `epoch` comes first.
    """
    tables = [pd.DataFrame(columns=["epoch", *COLUMNS])]
    for epoch in EPOCHS:
        own = at_epoch(frame, epoch)
        regrets = regrets_of(own, method, TOLERANCES) if len(own) else None
        if regrets is not None:
            tables.append(regrets.table[regrets.table["rival"] != ITSELF].assign(epoch=epoch))
    return pd.concat([table for table in tables if len(table)] or tables, ignore_index=True)[["epoch", *COLUMNS]]


def standings(judged: pd.DataFrame) -> pd.DataFrame:
    """A row per setting, noise level and group of tasks: how the method stands among *all* its rivals there.

    `verdict`: "worse" than at least one rival, else "undecided" against at least one, else "equivalent" or better to
    every one, else "better" than every one.
    """
    place = [*_BLOCK, "measure"]
    verdicts = judged.groupby(place, sort=False)["verdict"].agg(lambda own: min(own, key=WORST_FIRST.index))
    found: pd.DataFrame = verdicts.reset_index()
    return found


def dominating(judged: pd.DataFrame) -> pd.DataFrame:
    """Setting, noise and rival where the method is worse than the rival on clean tasks *and* overall."""
    worse = judged[judged["verdict"] == WORSE].groupby([*_BLOCK, "rival"]).size()
    found: pd.DataFrame = worse[worse == len(TOLERANCES)].reset_index()[[*_BLOCK, "rival"]]
    return found
