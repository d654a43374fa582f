"""Regret: how much worse a method is than each rival, setting by setting and noise level by noise level.

Differences are paired by seed; `excessmtl.lab.compare.comparison` says when the method is better, worse, equivalent, or
when the seeds leave it undecided.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from excessmtl.lab.compare.comparison import Comparison, difference, mean_change
from excessmtl.lab.compare.measures import number
from excessmtl.lab.compare.settings import Setting, chosen_options, settings
from excessmtl.lab.runs.config import SINGLE

ITSELF = "itself at noise 0"
_SETTING = ("benchmark", "source", "epochs", "setting", "noise")
COLUMNS = (*_SETTING, "rival", "measure", "unit", "regret", "lower", "upper", "seeds", "tolerance", "verdict")


@dataclass(frozen=True)
class Group:
    """Over which tasks scores are compared, and up to which difference methods are equivalent."""

    name: str
    """"clean": the tasks whose labels no noise touches; "overall": all of them."""
    points: float
    percent: float


GROUPS = (Group("clean", 0.3, 3.0), Group("overall", 1.0, 5.0))
_BySeed = dict[int, dict[str, float]]
"""Seed -> task -> score, NaN where it has diverged."""


@dataclass(frozen=True)
class Regrets:
    """The regrets of one method, and a sentence for every setting that could not be compared."""

    method: str
    table: pd.DataFrame
    """One row per setting, noise level, rival and group of tasks; positive: the method is worse."""
    left_out: tuple[str, ...] = ()


def regrets_of(frame: pd.DataFrame, method: str | None = None, groups: Sequence[Group] = GROUPS) -> Regrets | None:
    """The regrets of a method in every setting against every other weighting method; None where there are none.

    Shares such as accuracies are compared in points, other scores in percent of the rival's, and where tasks have
    metrics of different kinds the regret is the mean of the tasks' relative changes in percent. A run that has diverged
    is infinitely bad. With fewer than three seeds the interval has no ends and the verdict is "undecided". The rival
    "itself at noise 0" is the method's own clean score on labels without noise.

    Args:
        frame: runs as `collect` gives them.
        method: its label; None: the default of `excess`. A setting in which it cannot be told which runs these are is
            left out, with a sentence.
        groups: over which tasks, and what is tolerated; the first has the comparison with itself.
    """
    found = settings(frame)
    known = list(dict.fromkeys(label for setting in found for label in setting.runs["label"]))
    if method is not None and method not in known:
        raise ValueError(f"there is no run of {method!r}; the methods of these runs are {', '.join(known)}")
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    labels: dict[str, None] = {}
    for setting in found:
        try:
            label = _default_method(setting.runs) if method is None else method
        except ValueError as error:
            left_out.append(f"{setting.name}: {error}")
            continue
        weighting = setting.runs.loc[setting.runs["method"] != SINGLE, "label"]
        rivals = [own for own in dict.fromkeys(weighting) if own != label]
        if label is not None and rivals:
            labels[label] = None
            rows += _regrets(setting, label, rivals, groups)
    name = next(iter(labels)) if len(labels) == 1 else method or "excess"
    return Regrets(name, pd.DataFrame(rows, columns=list(COLUMNS)), tuple(left_out)) if rows or left_out else None


def _default_method(runs: pd.DataFrame) -> str | None:
    """The label of `excess` with its default options, or None where these runs have none."""
    rows = runs[["label", "method", "options"]].itertuples(index=False)
    found = list(dict.fromkeys(row[0] for row in rows if row[1] == "excess" and not chosen_options(row[2])))
    if len(found) > 1:
        raise ValueError(f"excess with its default options has several rows, {', '.join(found)}; name one of them")
    return found[0] if found else None


def _regrets(setting: Setting, method: str, rivals: Sequence[str], groups: Sequence[Group]) -> list[dict[str, Any]]:
    runs: dict[tuple[str, float], _BySeed] = {}
    for run in setting.runs.to_dict("records"):
        scores = {task: number(score) for task, score in run["scores"].items()}
        runs.setdefault((run["label"], float(run["noise"])), {})[run["seed"]] = scores
    rows: list[dict[str, Any]] = []
    for noise in dict.fromkeys(noise for label, noise in runs if label == method):
        pairs = [(rival, (rival, noise), group) for rival in rivals for group in groups]
        pairs += [(ITSELF, (method, 0.0), groups[0])] if noise > 0 else []
        about = (setting.benchmark, setting.source, setting.epochs, setting.name, noise)
        for rival, key, group in pairs:
            row = _row(setting, runs[method, noise], runs.get(key, {}), group)
            rows += [dict(zip(_SETTING, about, strict=True)) | {"rival": rival} | row] if row else []
    return rows


def _row(setting: Setting, ours: _BySeed, theirs: _BySeed, group: Group) -> dict[str, Any]:
    """What one comparison says; nothing without a common seed or task."""
    seeds = sorted(ours.keys() & theirs.keys())
    tasks = setting.clean_tasks if group.name == "clean" else setting.tasks
    if not seeds or not tasks:
        return {}
    metric = setting.common_metric
    in_points = metric is not None and metric.is_share
    tolerance = group.points if in_points else group.percent
    differences = [_difference(setting, ours[seed], theirs[seed], tasks) for seed in seeds]
    found = Comparison.of(differences, tolerance)
    return {
        "measure": group.name,
        "unit": "points" if in_points else "percent",
        # A regret is a difference with the other sign, so the ends change places; 0.0 minus it is never -0.0.
        "regret": 0.0 - found.mean,
        "lower": 0.0 - found.upper,
        "upper": 0.0 - found.lower,
        "seeds": found.seeds,
        "tolerance": tolerance,
        "verdict": found.verdict,
    }


def _difference(setting: Setting, mine: dict[str, float], other: dict[str, float], tasks: Sequence[str]) -> float:
    """How much better one run is on these tasks, in points or percent."""
    metric = setting.common_metric
    if metric is None:
        return mean_change(mine, other, {task: setting.metrics[task].higher_is_better for task in tasks})
    first, second = (sum(scores[task] for task in tasks) / len(tasks) for scores in (mine, other))
    return difference(first, second, metric.higher_is_better, None if metric.is_share else second)
