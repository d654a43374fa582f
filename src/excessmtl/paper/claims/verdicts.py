"""Every empirical claim of the paper (Secs. 3.3, 4.3, 4.4, appendix C), judged by collected runs.

Each claim is in `paper.claims`, with the rule it is judged by. The rules were fixed before any result was seen;
a verdict is what the rule gives, whichever way it goes.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from excessmtl.paper.claims.judging import Finding, on_data
from excessmtl.paper.collected import Runs

Judgement = Literal["holds", "does not hold", "not tried"]
Judge = Callable[..., Finding]
"""Of a `Subject`, or of all `Runs` together."""
# The order of the paper: claims are numbered by it.
_MODULES = (
    "conceptual",
    "estimation",
    "dynamics",
    "loss_profile",
    "clean_validation",
    "multimnist",
    "office_home",
    "nyuv2",
    "summary",
    "appendix",
)


@dataclass(frozen=True)
class Verdict:
    """What runs say about one claim."""

    number: int
    where: str
    """Section and figure of the paper."""
    claim: str
    """In our words."""
    verdict: Judgement
    evidence: str
    """The numbers behind it."""
    rule: str
    """What "holds" means here."""


@dataclass(frozen=True)
class _Claim:
    where: str
    text: str
    on: str | None
    judge: Judge

    def finding(self, runs: Runs) -> Finding:
        """On the data it is about."""
        return self.judge(runs) if self.on is None else on_data(self.on, self.judge, runs)


_CLAIMS: list[_Claim] = []


def claim(where: str, text: str, on: str | None = None) -> Callable[[Judge], Judge]:
    """Register a function that judges a claim; its docstring is the rule.

    It is given a `Subject` on the paper's data set `on`, or without `on` all `Runs`.
    """

    def register(judge: Judge) -> Judge:
        _CLAIMS.append(_Claim(where, text, on, judge))
        return judge

    return register


def verdicts(frame: pd.DataFrame, root: Path | None = None) -> list[Verdict]:
    """A verdict on each claim, in the order of the paper.

    Args:
        frame: runs as `analysis.collect.collect` gives them, of any benchmarks.
        root: the folder they were collected from. Claims about what happens during training need the run folders and
            are "not tried" without.
    """
    return judge_all(Runs.of(frame, root))


def judge_all(runs: Runs) -> list[Verdict]:
    """The same for runs that know where their folders are."""
    for module in _MODULES:  # imported here: they register themselves with this module
        importlib.import_module(f"excessmtl.paper.claims.{module}")
    ordered = sorted(_CLAIMS, key=lambda entry: _MODULES.index(entry.judge.__module__.rpartition(".")[2]))
    return [_verdict(number, entry, runs) for number, entry in enumerate(ordered, start=1)]


def _verdict(number: int, entry: _Claim, runs: Runs) -> Verdict:
    finding = entry.finding(runs)
    words: dict[bool | None, Judgement] = {True: "holds", False: "does not hold", None: "not tried"}
    rule = " ".join((entry.judge.__doc__ or "").split())
    return Verdict(number, entry.where, entry.text, words[finding.holds], finding.evidence, rule)
