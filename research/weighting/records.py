"""The bench's table: one row per world, noise level, candidate and seed."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from excessmtl.analysis.regret import GROUPS, difference, unit
from excessmtl.benchmarks.kinds import classification
from excessmtl.benchmarks.tasks import SHARE
from excessmtl.files import atomic_write
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


@dataclass(frozen=True)
class Run:
    """What is known of one run."""

    world: str
    noise: float
    candidate: str
    seed: int
    scores: dict[str, float]
    weights: dict[str, float]
    kinds: dict[str, str]
    noisy_tasks: tuple[str, ...]

    def as_row(self) -> dict[str, Any]:
        """In the form that `excessmtl.analysis.regret` reads."""
        accuracy = {task: kind == "classification" for task, kind in self.kinds.items()}
        return {
            "scores": self.scores,
            "primary_metric": self.kinds,
            "higher_is_better": accuracy,
            "units": {task: SHARE if higher else "" for task, higher in accuracy.items()},
            "noisy_tasks": self.noisy_tasks,
        }


def runs_of(cases: Cases, candidates: Sequence[Candidate], outcome: Outcome) -> Iterable[Run]:
    """The runs of one world, one by one."""
    names = [task.name for task in cases.tasks]
    kinds = {task.name: "classification" if task.kind == classification else "regression" for task in cases.tasks}
    scores, weights = outcome.scores.tolist(), outcome.weights.tolist()
    for place, candidate in enumerate(candidates):
        for case, (level, seed) in enumerate(cases.cases):
            yield Run(
                cases.world,
                level,
                candidate.name,
                seed,
                dict(zip(names, scores[place][case], strict=True)),
                dict(zip(names, weights[place][case], strict=True)),
                kinds,
                cases.noisy_tasks,
            )


def table(runs: Iterable[Run]) -> pd.DataFrame:
    """Scores, how much worse they are than each rival's of the same seed, and weights.

    `clean` and `overall` are means over the clean tasks and over all, empty where tasks have metrics of different
    kinds. `..._against_...` is in `unit`, points of accuracy or percent, and positive where the candidate is worse.
    """
    known = {(run.world, run.noise, run.candidate, run.seed): run for run in runs}
    rows = []
    for (world, noise, candidate, seed), run in known.items():
        ours, mixed = run.as_row(), len(set(run.kinds.values())) > 1
        row: dict[str, Any] = {"world": world, "noise": noise, "candidate": candidate, "seed": seed, "unit": unit(ours)}
        for group in GROUPS:
            tasks = group.tasks(ours)
            row[group.name] = None if mixed else statistics.fmean(run.scores[task] for task in tasks)
            for rival in RIVAL_NAMES:
                theirs = known.get((world, noise, rival, seed))
                regret = None if theirs is None else difference(ours, theirs.as_row(), tasks)
                row[f"{group.name}_against_{rival}"] = regret
        row["clean_weight"] = sum(weight for task, weight in run.weights.items() if task not in run.noisy_tasks)
        row["smallest_weight"] = min(run.weights.values())
        rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def write(frame: pd.DataFrame, path: Path) -> None:
    """As CSV."""
    with atomic_write(path) as file:
        file.write(frame.round(5).to_csv(index=False, float_format="%.6g").encode())
