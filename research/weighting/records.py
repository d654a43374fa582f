"""The bench's table: one row per world, noise level, candidate and seed."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from excessmtl.files import atomic_write
from excessmtl.lab.compare.regret import GROUPS, difference, unit
from excessmtl.lab.data.kinds import classification
from excessmtl.lab.data.tasks import SHARE
from research.weighting.candidates import Candidate
from research.weighting.stacked import Outcome
from research.weighting.tried import RIVALS
from research.weighting.worlds import Cases

RIVAL_NAMES = tuple(rival.name for rival in RIVALS)
COLUMNS = (
    "world",
    "noise",
    "candidate",
    "seed",
    "unit",
    *(group.name for group in GROUPS),
    *(f"{group.name}_against_{rival}" for group in GROUPS for rival in RIVAL_NAMES),
    "clean_weight",
    "smallest_weight",
)


def table(cases: Cases, candidates: Sequence[Candidate], outcome: Outcome) -> pd.DataFrame:
    """The scores of one world, how much worse they are than each rival's of the same seed, and weights.

    `clean` and `overall` are means over the clean tasks and over all, empty where tasks have metrics of different
    kinds. `..._against_...` is in `unit`, points of accuracy or percent, and positive where the candidate is worse.
    """
    accuracy = {task.name: task.kind == classification for task in cases.tasks}
    # The columns of a run that `excessmtl.lab.compare.regret` reads.
    known = {
        "primary_metric": {task: "accuracy" if higher else "error" for task, higher in accuracy.items()},
        "higher_is_better": accuracy,
        "units": {task: SHARE if higher else "" for task, higher in accuracy.items()},
        "noisy_tasks": cases.noisy_tasks,
    }
    scores, weights = (
        {
            (candidate.name, case): dict(zip(accuracy, own, strict=True))
            for candidate, by_case in zip(candidates, values.tolist(), strict=True)
            for case, own in zip(cases.cases, by_case, strict=True)
        }
        for values in (outcome.scores, outcome.weights)
    )
    mixed = len(set(accuracy.values())) > 1
    rows = []
    for (name, (noise, seed)), own in scores.items():
        ours, given = {**known, "scores": own}, weights[name, (noise, seed)]
        row: dict[str, Any] = {"world": cases.world, "noise": noise, "candidate": name, "seed": seed}
        row["unit"] = unit(ours)
        for group in GROUPS:
            tasks = group.tasks(ours)
            row[group.name] = None if mixed else statistics.fmean(own[task] for task in tasks)
            for rival in RIVAL_NAMES:
                theirs = {**known, "scores": scores[rival, (noise, seed)]}
                row[f"{group.name}_against_{rival}"] = difference(ours, theirs, tasks)
        row["clean_weight"] = sum(weight for task, weight in given.items() if task not in cases.noisy_tasks)
        row["smallest_weight"] = min(given.values())
        rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def write(frame: pd.DataFrame, path: Path) -> None:
    """As CSV."""
    with atomic_write(path) as file:
        file.write(frame.round(5).to_csv(index=False, float_format="%.6g").encode())
