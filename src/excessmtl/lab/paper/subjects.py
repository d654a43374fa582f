"""What runs are about: the methods that the paper compares, and its data or what stands in for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from excessmtl.lab.compare.comparison import Spread
from excessmtl.lab.compare.settings import Setting, chosen_options, settings
from excessmtl.lab.data.tasks import PLAIN
from excessmtl.lab.runs.config import SINGLE

KIT = "MultiTaskLoss (ours)"
ROBUST = "ExcessMTL (ours, robust)"
PAPER = "ExcessMTL (paper)"
NORMALISED = "ExcessMTL (paper, normalised)"
UNIFORM, GRADNORM, MGDA, GROUPDRO, IMTL = "Uniform", "GradNorm", "MGDA", "GroupDRO", "IMTL"
MOML, SINGLE_TASK = "MOML", "Single-task"

PAPER_EXCESS = (PAPER, NORMALISED)
"""Algorithm 1, which the paper's claims are about; the second divides by the first value of each risk."""
ADAPTIVE_RIVALS = (GRADNORM, MGDA, GROUPDRO, IMTL)
"""The adaptive methods that the paper compares itself with."""
COMPARED = (KIT, ROBUST, PAPER, NORMALISED, UNIFORM, *ADAPTIVE_RIVALS)
"""What the figures over noise levels show."""


@dataclass(frozen=True)
class Method:
    """A method as it is configured: the arguments of a run."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    loss: str = PLAIN


METHODS = {
    KIT: Method("excess", loss="robust"),
    ROBUST: Method("excess"),
    PAPER: Method("excess", {"estimator": "paper"}),
    NORMALISED: Method("excess", {"estimator": "paper", "normalize": "initial"}),
    **{shown: Method(shown.lower()) for shown in (UNIFORM, GRADNORM, MGDA, GROUPDRO, IMTL, MOML)},
    SINGLE_TASK: Method(SINGLE),
}
"""In the order in which figures and tables list them."""


def shown_name(method: str, options: Mapping[str, Any], label: str, mixed: bool, loss: str = PLAIN) -> str:
    """The paper's name of a run's method where it is configured as there, else its label.

    `options`: as the run resolved them. `mixed`: whether the tasks have losses of different kinds. The paper divides by
    a warm-up mean there, and runs do so unless told otherwise.
    """
    set_options = chosen_options(options)
    if mixed and set_options.get("normalize") == "initial" and "warmup_steps" in set_options:
        set_options = {"estimator": "paper"}
    for title, known in METHODS.items():
        if (method, set_options, loss) == (known.name, dict(known.options), known.loss):
            return title
    return label


@dataclass(frozen=True)
class PaperData:
    """A data set of the paper."""

    title: str
    source: str
    """What the source of complete data begins with, a regular expression."""
    epochs: int
    """Of the paper's recipe."""
    stand_in: str | None = None
    """The benchmark that needs no file."""


DATA = {
    "multimnist": PaperData("MultiMNIST", r"MNIST, 60,000 \+ 10,000 digits, 60,000 pairs\b", 15),
    "office-home": PaperData("Office-Home", r".*\b65 classes\b", 100, "digit-domains"),
    "sarcos": PaperData("SARCOS", r"SARCOS, official files\b", 100, "simulated-arm"),
    "nyuv2": PaperData("NYUv2", r"NYUv2, 795 \+ 654 scenes\b", 200, "synthetic-rooms"),
}
"""By the name of the benchmark."""
_DOMAINS = {"art", "clipart", "product", "realworld"}
"""The tasks of Office-Home: any tree of pictures can be trained as `office-home`."""
_FILES = {"steps_path": "steps.npz", "metrics_path": "metrics.csv"}


@dataclass(frozen=True)
class Subject:
    """Runs on the same data for the same number of epochs, and which data set of the paper they are about."""

    wanted: str
    """The benchmark of the paper's data."""
    setting: Setting
    number: int = 1
    """Where there are several with the same kind of data."""

    @property
    def runs(self) -> pd.DataFrame:
        """A row per run."""
        return self.setting.runs

    @property
    def is_the_papers(self) -> bool:
        """Whether this is the data of the paper."""
        tasks = {re.sub(r"[^a-z]", "", task.lower()) for task in self.setting.tasks}
        return self.setting.benchmark == self.wanted and (self.wanted != "office-home" or tasks == _DOMAINS)

    @property
    def is_at_the_papers_scale(self) -> bool:
        """Whether claims about this data can be judged by these runs: all of the data, trained as long as there."""
        known = DATA.get(self.wanted)
        if known is None or not self.is_the_papers or self.setting.epochs < known.epochs:
            return False
        shortened = any(isinstance(own, Mapping) and own.get("limit_batches") for own in self.runs["settings"])
        return re.match(known.source, self.setting.source) is not None and not shortened

    @property
    def title(self) -> str:
        """For pictures and tables."""
        name, source = DATA[self.wanted].title if self.wanted in DATA else self.wanted.capitalize(), self.setting.source
        if not self.is_the_papers:
            return f"{source[0].upper()}{source[1:]} (stand-in for {name})"
        return source if source.startswith(name) else f"{name}: {source}"

    @property
    def kind(self) -> str:
        """What the data is in a word: nothing for the paper's."""
        if self.is_the_papers:
            return ""
        other = self.setting.benchmark
        return other if other != self.wanted else re.split(r"[.:]", self.setting.source)[0]

    @property
    def suffix(self) -> str:
        """What files add to the figure's name, so that each data set has its own."""
        words = (re.sub(r"[^\w-]+", "-", self.kind), str(self.number) if self.number > 1 else "")
        return "".join(f"_{word}" for word in words if word)

    def of(self, shown: str | Sequence[str], noise: float | None = None) -> pd.DataFrame:
        """The runs of a method (or several), at one noise level or all."""
        names = [shown] if isinstance(shown, str) else list(shown)
        chosen = self.runs.shown.isin(names)
        return self.runs[chosen if noise is None else chosen & (self.runs.noise == noise)]


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
        from excessmtl.lab.runs.folder import file_in  # `reproduce --list` needs no run

        runs = [(run, len(set(run.primary_metric.values())) > 1) for run in frame.itertuples()]
        shown = [shown_name(run.method, run.options, run.label, mixed, run.loss) for run, mixed in runs]
        named = frame.assign(shown=shown)
        for column, name in _FILES.items():
            paths = [None if root is None else file_in(root, folder, name) for folder in frame.folder]
            named[column] = pd.Series(paths, frame.index, object)
        return cls(named)

    @classmethod
    def read(cls, folder: Path) -> "Runs":
        """All finished runs under a folder."""
        from excessmtl.lab.compare.collect import collect

        return cls.of(collect(folder), folder)

    def subjects(self, wanted: str) -> list[Subject]:
        """What they say about one data set of the paper: on the data itself first, then the more runs the earlier."""
        if wanted not in self._subjects:  # every claim asks
            names = [wanted, DATA[wanted].stand_in] if wanted in DATA else [wanted]
            found = [Subject(wanted, own) for own in settings(self.frame[self.frame.benchmark.isin(names)])]
            found.sort(key=lambda own: (not own.is_at_the_papers_scale, not own.is_the_papers, -len(own.runs)))
            kinds = [own.kind for own in found]
            numbers = [1 + kinds[:place].count(kind) for place, kind in enumerate(kinds)]
            self._subjects[wanted] = [replace(own, number=n) for own, n in zip(found, numbers, strict=True)]
        return self._subjects[wanted]


def over_seeds(subject: Subject, columns: Mapping[str, pd.Series], **known: Any) -> pd.DataFrame:
    """One row per method and noise level: each column over the seeds, and how many runs there were.

    `columns`: what to summarise, by run; a run that diverged has no number there. Each gives its mean, `_sd`, and the
    bounds of the mean's 90 % interval, `_low` and `_high`, which are NaN where one seed is all. `known`: what every row
    says, besides the data and the epochs.
    """
    rows = []
    runs = subject.runs.loc[next(iter(columns.values())).index]
    for (shown, noise), group in runs.groupby(["shown", "noise"], sort=True):
        row = {"data": subject.title, "epochs": subject.setting.epochs, **known}
        row |= {"method": shown, "noise": noise, "seeds": group.seed.nunique()}
        for name, values in columns.items():
            spread = Spread.of(pd.to_numeric(values.loc[group.index]).astype(float))
            names = (name, f"{name}_sd", f"{name}_low", f"{name}_high")
            row |= dict(zip(names, (spread.mean, spread.deviation, *spread.interval), strict=True))
        rows.append(row)
    return pd.DataFrame(rows)
