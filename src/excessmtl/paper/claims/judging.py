"""How single checks become a finding: over methods, over the two forms of the paper's ExcessMTL, over data sets.

Claims about ExcessMTL are about Algorithm 1. The paper does not say everywhere whether excess risks were divided by
their initial values, so such a claim holds where it does for one of the two forms; ours is shown with them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from excessmtl.paper.claims.measures import Lacking
from excessmtl.paper.collected import Runs
from excessmtl.paper.methods import PAPER_EXCESS, ROBUST
from excessmtl.paper.subjects import TITLES, Subject


@dataclass(frozen=True)
class Finding:
    """Whether a claim holds (None: the runs cannot tell), and the numbers."""

    holds: bool | None
    evidence: str


@dataclass(frozen=True)
class Check:
    """One thing a rule asks, answered."""

    ok: bool
    text: str


Test = Callable[[str], Check]
Data = TypeVar("Data")


def _try(test: Test, shown: str) -> Finding:
    try:
        check = test(shown)
    except Lacking as lacking:
        return Finding(None, f"{shown}: not in the runs ({lacking})")
    return Finding(check.ok, f"{shown}: {'as claimed' if check.ok else 'not as claimed'}, {check.text}")


def every(names: Sequence[str], test: Test) -> Finding:
    """Holds where all methods pass; one that fails settles it, one that is missing leaves it open."""
    found = [_try(test, shown) for shown in names]
    answers = [one.holds for one in found]
    holds = False if False in answers else None if None in answers else True
    return Finding(holds, "; ".join(one.evidence for one in found))


def some(names: Sequence[str], test: Test) -> Finding:
    """Holds where one method passes; one that is missing might have."""
    found = [_try(test, shown) for shown in names]
    answers = [one.holds for one in found]
    holds = True if True in answers else None if None in answers else False
    return Finding(holds, "; ".join(one.evidence for one in found))


def excess(test: Test) -> Finding:
    """Holds where one form of the paper's ExcessMTL passes; the robust one is shown too."""
    found = [_try(test, shown) for shown in (*PAPER_EXCESS, ROBUST)]
    answers = [one.holds for one in found[: len(PAPER_EXCESS)]]
    holds = True if True in answers else False if False in answers else None
    return Finding(holds, "; ".join(one.evidence for one in found))


def both(first: Finding, second: Finding) -> Finding:
    """Holds where both do."""
    answers = (first.holds, second.holds)
    holds = False if False in answers else None if None in answers else True
    return Finding(holds, f"{first.evidence}. {second.evidence}")


def on_data(wanted: str, judge: Callable[[Subject], Finding], runs: Runs) -> Finding:
    """Judge on one data set of the paper: by its own data; what stand-ins say is evidence, not a verdict."""
    found = runs.subjects(wanted)
    own = [subject for subject in found if subject.is_the_papers]
    others = [subject for subject in found if not subject.is_the_papers]
    finding = guarded(judge, own[0]) if own else Finding(None, f"{TITLES[wanted]} is not in the runs")
    aside = [f"On {subject.title}, {in_words(guarded(judge, subject))}" for subject in [*own[1:], *others]]
    return Finding(finding.holds, ". ".join([finding.evidence, *aside]))


def guarded(judge: Callable[[Data], Finding], data: Data) -> Finding:
    """A judgement, open where runs are missing."""
    try:
        return judge(data)
    except Lacking as lacking:
        return Finding(None, f"not in the runs: {lacking}")


def in_words(finding: Finding) -> str:
    """For evidence that is not the verdict."""
    words = {True: "the rule is met", False: "the rule is not met", None: "the runs cannot tell"}[finding.holds]
    return f"{words}: {finding.evidence}"
