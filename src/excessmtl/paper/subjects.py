"""What the runs were trained on: the paper's data, or what stands in for it, never one under the other's name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from excessmtl.benchmarks import registry as benchmarks

TITLES = {"multimnist": "MultiMNIST", "office-home": "Office-Home", "sarcos": "SARCOS", "nyuv2": "NYUv2"}
"""The paper's data sets by the name of their benchmark."""


@dataclass(frozen=True)
class Subject:
    """Runs on the same data for the same number of epochs, and which data set of the paper they are about."""

    wanted: str
    """The benchmark of the paper's data."""
    benchmark: str
    source: str
    epochs: int
    runs: pd.DataFrame
    number: int = 1
    """Where there are several with the same kind of data."""

    @property
    def is_the_papers(self) -> bool:
        """Whether this is the data of the paper (any tree of pictures can be trained as `office-home`)."""
        return self.benchmark == self.wanted and (self.wanted != "office-home" or "65 classes" in self.source)

    @property
    def title(self) -> str:
        """For pictures and tables."""
        name = TITLES.get(self.wanted, self.wanted.capitalize())
        if not self.is_the_papers:
            return f"{self.source[0].upper()}{self.source[1:]} (stand-in for {name})"
        return self.source if self.source.startswith(name) else f"{name}: {self.source}"

    @property
    def kind(self) -> str:
        """What the data is in a word: nothing for the paper's."""
        if self.is_the_papers:
            return ""
        return self.benchmark if self.benchmark != self.wanted else re.split(r"[.:]", self.source)[0]

    @property
    def suffix(self) -> str:
        """What files add to the figure's name, so that each data set has its own."""
        return "".join(f"_{word}" for word in (self.kind, str(self.number) if self.number > 1 else "") if word)

    def of(self, shown: str | Sequence[str], noise: float | None = None) -> pd.DataFrame:
        """The runs of a method (or several), at one noise level or all."""
        names = [shown] if isinstance(shown, str) else list(shown)
        chosen = self.runs.shown.isin(names)
        return self.runs[chosen if noise is None else chosen & (self.runs.noise == noise)]


def stand_in(wanted: str) -> str | None:
    """The benchmark that needs no file."""
    entry = benchmarks().get(wanted)
    return None if entry is None else entry.stand_in


def subjects(frame: pd.DataFrame, wanted: str) -> list[Subject]:
    """What the runs say about one data set of the paper: on the data itself first, then the more runs the earlier."""
    known = frame[frame.benchmark.isin([wanted, stand_in(wanted)])]
    found = [
        Subject(wanted, benchmark, source, int(epochs), runs)
        for (benchmark, source, epochs), runs in known.groupby(["benchmark", "source", "epochs"])
    ]
    found.sort(key=lambda subject: (not subject.is_the_papers, -len(subject.runs)))
    kinds = [subject.kind for subject in found]
    return [replace(subject, number=1 + kinds[:i].count(subject.kind)) for i, subject in enumerate(found)]
