"""Regret: how much worse a method is than each rival, setting by setting and noise level by noise level; its tables.

Differences are paired by seed; `excessmtl.lab.compare.comparison` says when the method is better, worse, equivalent, or
when the seeds leave it undecided.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excessmtl.files import write_whole
from excessmtl.lab.compare.collect import csv_text
from excessmtl.lab.compare.comparison import (
    BETTER,
    CONFIDENCE,
    EQUIVALENT,
    SEEDS,
    UNDECIDED,
    WORSE,
    WORST_FIRST,
    Comparison,
    difference,
    mean_change,
)
from excessmtl.lab.compare.measures import scores_of
from excessmtl.lab.compare.settings import Setting, chosen_options, settings
from excessmtl.lab.compare.table import Cell, Row, Table
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
_BADGES = {WORSE: "bad", BETTER: "good", EQUIVALENT: "good", UNDECIDED: ""}
_TASKS = {"clean": "tasks without added noise", "overall": "all tasks"}
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

    `method`: its label; None: the default of `excess`. A setting in which it cannot be told which runs these are is
    left out, with a sentence. `groups`: the first has the comparison with itself.
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
        raise ValueError(f"excess with its default options has several rows, {', '.join(found)}; name one by --method")
    return found[0] if found else None


def _regrets(setting: Setting, method: str, rivals: Sequence[str], groups: Sequence[Group]) -> list[dict[str, Any]]:
    runs: dict[tuple[str, float], _BySeed] = {}
    for run, scores in zip(setting.runs.to_dict("records"), scores_of(setting), strict=True):
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


def write_regrets(regrets: pd.DataFrame, path: Path) -> Path:
    """The whole table as CSV; the file."""
    write_whole(path, csv_text(regrets).encode())
    return path


def verdict(regrets: pd.DataFrame, method: str) -> str:
    """One sentence for all rows."""
    how = f"by the {CONFIDENCE:.0%} interval of the paired differences"
    if (regrets["seeds"] < SEEDS).all():
        how = f"fewer than {SEEDS} seeds decide nothing"
    return f"Of {len(regrets)} comparisons {method} is {counted(regrets['verdict'])} ({how})."


def counted(verdicts: Iterable[str]) -> str:
    """How many there are of each: "better in 3, equivalent in 1, undecided in 5, worse in 2"."""
    found = list(verdicts)
    return ", ".join(f"{word} in {found.count(word)}" for word in reversed(WORST_FIRST))


def every_regret(regrets: pd.DataFrame) -> Table:
    """A row per comparison, the worst first.

    By verdict, then by the regret in tolerances, so that points and percent can be ordered together.
    """
    ends = ("regret", "lower end", "upper end")
    heads = ["rival", "benchmark", "noise", "tasks", *ends, "tolerance", "verdict", "seeds"]
    verdicts = [WORST_FIRST.index(word) for word in regrets["verdict"]]
    order = np.lexsort((-regrets["regret"] / regrets["tolerance"], verdicts))
    return Table("Regret", heads, [_shown(row) for _, row in regrets.iloc[order].iterrows()])


def _shown(row: pd.Series) -> Row:
    unit, word = " %" if row["unit"] == "percent" else "", row["verdict"]
    cells = [
        Cell(row["rival"], method=row["rival"]),
        Cell(row["setting"]),
        Cell(f"{row['noise']:g}", str(row["noise"])),
        Cell(_TASKS[row["measure"]]),
        *(_number(row[column], unit) for column in ("regret", "lower", "upper")),
        Cell(f"{row['tolerance']:g}{unit}", f"{row['tolerance']:g}"),
        Cell(word, str(WORST_FIRST.index(word)), badge=_BADGES[word]),
        Cell(str(row["seeds"])),
    ]
    return Row(cells, flagged=word == WORSE)


def _number(value: float, unit: str) -> Cell:
    if math.isnan(value):
        return Cell("–", "")
    if math.isinf(value):
        return Cell("diverged", "Infinity") if value > 0 else Cell("rival diverged", "-Infinity")
    return Cell(f"{value:+z.2f}{unit}".replace("-", "−"), f"{value:.8g}")
