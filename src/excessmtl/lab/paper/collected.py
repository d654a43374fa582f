"""Collected runs as the paper's figures and claims see them, with the files of their training where there are any."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from excessmtl.lab.compare.collect import collect
from excessmtl.lab.compare.courses import file_in
from excessmtl.lab.paper.methods import with_shown_names
from excessmtl.lab.paper.subjects import Subject, subjects

_FILES = {"steps_path": "steps.npz", "metrics_path": "metrics.csv"}


@dataclass(frozen=True)
class Runs:
    """A table of runs: what `collect` gives, the paper's name of each method (`shown`), and where its files lie.

    `steps_path` and `metrics_path` are the paths of steps.npz and metrics.csv, None where there are none.
    """

    frame: pd.DataFrame
    _subjects: dict[str, list[Subject]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, frame: pd.DataFrame, root: Path | None = None) -> "Runs":
        """Runs that `collect(root)` gave; without `root` their folders are not looked for."""
        named = with_shown_names(frame)
        for column, name in _FILES.items():
            paths = [None if root is None else file_in(root, folder, name) for folder in frame.folder]
            named[column] = pd.Series(paths, frame.index, object)
        return cls(named)

    @classmethod
    def read(cls, folders: Sequence[Path]) -> "Runs":
        """All finished runs under several folders; a run whose copy lies under the same path in two counts once."""
        # By rows: pandas guesses types anew when it joins tables in which a column is empty.
        rows = [row for folder in folders for row in cls.of(collect(folder), folder).frame.to_dict("records")]
        copies = {repr({**row, **dict.fromkeys(_FILES)}): row for row in reversed(rows)}
        return cls(pd.DataFrame(list(reversed(copies.values()))))

    def subjects(self, wanted: str) -> list[Subject]:
        """What the runs say about one data set of the paper."""
        if wanted not in self._subjects:  # every claim asks
            self._subjects[wanted] = subjects(self.frame, wanted)
        return self._subjects[wanted]
