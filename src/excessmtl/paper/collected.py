"""Collected runs, and what their folders say about the course of training where the folders are at hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from excessmtl.analysis.collect import collect
from excessmtl.paper.methods import with_shown_names
from excessmtl.paper.subjects import Subject, subjects

_IDENTITY = ["benchmark", "source", "epochs", "shown", "noise", "seed"]


@dataclass(frozen=True)
class Steps:
    """Step by step: one row per step, one column per task."""

    weights: pd.DataFrame
    losses: pd.DataFrame
    excess_risks: pd.DataFrame


@dataclass(frozen=True)
class Runs:
    """A table of runs: what `collect` gives, the paper's name of each method (`shown`), and where its files lie.

    `path` is None where nobody said, and the files may be missing where somebody did.
    """

    frame: pd.DataFrame

    @classmethod
    def of(cls, frame: pd.DataFrame, root: Path | None = None) -> "Runs":
        """Runs that `collect(root)` gave; without `root` their folders are not looked for."""
        paths = pd.Series([None if root is None else root / folder for folder in frame.folder], frame.index, object)
        named = with_shown_names(frame.assign(path=paths))
        return cls(named.drop_duplicates(_IDENTITY, ignore_index=True))

    @classmethod
    def read(cls, folders: Sequence[Path]) -> "Runs":
        """All finished runs under several folders, each run once."""
        # By rows: pandas guesses types anew when it joins tables in which a column is empty.
        rows = [row for folder in folders for row in cls.of(collect(folder), folder).frame.to_dict("records")]
        return cls(pd.DataFrame(rows).drop_duplicates(_IDENTITY, ignore_index=True))

    def subjects(self, wanted: str) -> list[Subject]:
        """What the runs say about one data set of the paper."""
        return subjects(self.frame, wanted)


def has_course(run: pd.Series) -> bool:
    """Whether the course of this run can be read."""
    return run.path is not None and (run.path / "steps.npz").is_file()


def epochs_of(run: pd.Series) -> pd.DataFrame:
    """metrics.csv: one row per epoch."""
    return pd.read_csv(run.path / "metrics.csv")


def steps_of(run: pd.Series) -> Steps:
    """steps.npz."""
    with np.load(run.path / "steps.npz") as file:
        tasks = [str(task) for task in file["tasks"]]
        tables = {name: pd.DataFrame(file[name], columns=tasks) for name in ("weights", "losses", "excess_risks")}
    return Steps(**tables)
