"""Learning rate and the like, chosen for each method: first a sweep that tries them, then the study at the choice.

For each benchmark, method and noise level, every combination of the values is trained on the tuning seeds. The one with
the lowest mean validation error is taken (`validation_error` of summary.json: of the last epoch, the mean over the
tasks of one minus the accuracy, or of the NMSE). Validation labels are as noisy as the training labels, in the tuning
runs and in those of the study: nobody who needs a robust method has others.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.folder import RunFolder
from excessmtl.lab.studies.folders import folder_of

TUNABLE = ("learning_rate", "weight_decay", "batch_size", "schedule", "warmup_steps")
"""Fields of a run that a study may tune; the others change what is compared."""
FIRST_SEED = 1000
"""Of the tuning runs where a study says only how many: no seed both chooses and counts."""
CHOSEN = "chosen.csv"


@dataclass(frozen=True)
class Tune:
    """What is tried before a study: every combination of `values`, on each of `seeds`."""

    values: Mapping[str, Sequence[Any]]
    seeds: Sequence[int]

    @property
    def points(self) -> list[dict[str, Any]]:
        """All combinations, in the order of the values."""
        return [dict(zip(self.values, point, strict=True)) for point in itertools.product(*self.values.values())]

    def runs(self, runs: Sequence[RunConfig]) -> list[RunConfig]:
        """The tuning runs for these runs of a study."""
        return [run for config in _groups(runs).values() for point in self.points for run in self._tries(config, point)]

    def _tries(self, config: RunConfig, point: Mapping[str, Any]) -> list[RunConfig]:
        return [replace(config, **point, seed=seed, noisy_validation=True) for seed in self.seeds]

    def choose(self, runs: Sequence[RunConfig], folder: Path) -> tuple[tuple[RunConfig, ...], pd.DataFrame]:
        """The runs of a study at the values that the tuning runs in `folder` choose, and a table of all values tried.

        Values some of whose runs have not finished are not chosen; runs without any choice are left out.
        """
        table, chosen = [], {}
        for place, config in _groups(runs).items():
            errors = [fmean(_error(folder / folder_of(run)) for run in self._tries(config, p)) for p in self.points]
            known = [number for number, error in enumerate(errors) if not math.isnan(error)]
            best = min(known, key=lambda number: errors[number]) if known else None
            for number, point in enumerate(self.points):
                row = {"benchmark": config.benchmark, "noise_kind": config.noise_kind, "label": config.name}
                row |= {"noise": config.noise, "noisy_tasks": " ".join(config.noisy_tasks or ()), **point}
                row |= {"validation_error": errors[number], "seeds": len(self.seeds), "chosen": number == best}
                table.append(row)
            if best is not None:
                chosen[place] = self.points[best]
        places = [(run, _place(run)) for run in runs]
        made = [replace(run, **chosen[place], noisy_validation=True) for run, place in places if place in chosen]
        return tuple(made), pd.DataFrame(table)


def tuning_folder(out: Path) -> Path:
    """Beside the folder of the study, whose tables are about its own runs alone."""
    return out.with_name(f"{out.name}-tuning")


def _place(config: RunConfig) -> Path:
    """What the runs of all seeds have in common."""
    return folder_of(config).parent


def _groups(runs: Sequence[RunConfig]) -> dict[Path, RunConfig]:
    """The first of the runs that differ in their seed alone."""
    groups: dict[Path, RunConfig] = {}
    for config in runs:
        groups.setdefault(_place(config), config)
    return groups


def _error(folder: Path) -> float:
    """The validation error of a finished run; infinite if it has diverged, NaN if it has not finished."""
    summary = RunFolder(folder).summary
    if summary is None:
        return math.nan
    error = summary.get("validation_error")
    return math.inf if error is None else float(error)
