"""What a claim is, and how answers about single methods become a finding: over methods, forms and data sets.

Claims about ExcessMTL are about Algorithm 1. The paper does not say everywhere whether excess risks were divided by
their initial values, so such a claim holds where it does for one of the two forms; ours is shown with them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from excessmtl.lab.paper.claims import answers
from excessmtl.lab.paper.claims.answers import UNDECIDED, Answer
from excessmtl.lab.paper.claims.measures import Lacking
from excessmtl.lab.paper.collected import Runs
from excessmtl.lab.paper.methods import PAPER_EXCESS, ROBUST
from excessmtl.lab.paper.subjects import TITLES


@dataclass(frozen=True)
class Finding:
    """Whether something holds (None: the runs that could tell are missing), and the numbers."""

    holds: Answer | None
    evidence: str


Judge = Callable[[Any], Finding]
"""Of what the claim is about: a `Subject`, or all `Runs`."""
Ask = Callable[..., Finding]
"""Of the same and the name of a method. Raises `Lacking` where runs are missing."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and the rule it is judged by, in words and as a function."""

    where: str
    """Section and figure of the paper."""
    on: str | None
    """The data set of the paper that it is about; None: all runs together."""
    text: str
    """In our words."""
    rule: str
    """What "holds" means here."""
    judge: Judge

    def finding(self, runs: Runs) -> Finding:
        """By the paper's own data at the paper's scale; what other runs say is evidence, not a verdict."""
        if self.on is None:
            return self.judge(runs)
        found = runs.subjects(self.on)
        finding = Finding(None, f"{TITLES[self.on]} at the paper's scale is not in the runs")
        if found and found[0].is_at_the_papers_scale:
            finding, found = guarded(self.judge, found[0]), found[1:]
        aside = [f"On {subject.title}, {in_words(guarded(self.judge, subject))}" for subject in found]
        return Finding(finding.holds, ". ".join([finding.evidence, *aside]))


def every(names: Sequence[str], ask: Ask) -> Judge:
    """Holds where all methods pass; one that fails settles it, one that is missing leaves it open."""
    return lambda data: _first(_answers(names, ask, data), (False, None, UNDECIDED, True))


def some(names: Sequence[str], ask: Ask) -> Judge:
    """Holds where one method passes; one that is missing might have."""
    return lambda data: _first(_answers(names, ask, data), (True, None, UNDECIDED, False))


def excess(ask: Ask) -> Judge:
    """Holds where one form of the paper's ExcessMTL passes; the robust one is shown too."""

    def judge(data: Any) -> Finding:
        decided = _first(_answers(PAPER_EXCESS, ask, data), (True, UNDECIDED, False, None))
        (ours,) = _answers([ROBUST], ask, data)
        return Finding(decided.holds, f"{decided.evidence}; {ours.evidence}")

    return judge


def both(first: Judge, second: Judge) -> Judge:
    """Holds where both do."""
    return lambda data: _first([first(data), second(data)], (False, None, UNDECIDED, True), ". ")


def all_of(*asks: Ask) -> Ask:
    """Passes where all of the questions do."""
    return lambda data, shown, **more: _first([ask(data, shown, **more) for ask in asks], (False, UNDECIDED, True))


def no(ask: Ask) -> Ask:
    """The same numbers, the other answer."""

    def opposite_of(data: Any, shown: str) -> Finding:
        found = ask(data, shown)
        return Finding(None if found.holds is None else answers.opposite(found.holds), found.evidence)

    return opposite_of


def untold(reason: str) -> Judge:
    """A claim that no run can tell anything about."""
    return lambda runs: Finding(None, reason)


def guarded(judge: Judge, data: Any) -> Finding:
    """A judgement, open where runs are missing."""
    try:
        return judge(data)
    except Lacking as lacking:
        return Finding(None, f"not in the runs: {lacking}")


def in_words(finding: Finding) -> str:
    """For evidence that is not the verdict."""
    words = {True: "the rule is met", False: "the rule is not met", UNDECIDED: "the seeds leave it undecided"}
    return f"{words.get(finding.holds, 'the runs cannot tell')}: {finding.evidence}"


def _answers(names: Sequence[str], ask: Ask, data: Any) -> list[Finding]:
    words = {True: "as claimed", False: "not as claimed", UNDECIDED: "undecided"}
    findings = []
    for shown in names:
        try:
            found = ask(data, shown)
            told = words.get(found.holds, "not in the runs")
            findings.append(Finding(found.holds, f"{shown}: {told}, {found.evidence}"))
        except Lacking as lacking:
            findings.append(Finding(None, f"{shown}: not in the runs ({lacking})"))
    return findings


def _first(found: Sequence[Finding], order: Sequence[Answer | None], separator: str = "; ") -> Finding:
    """All evidence, and the first answer in this order that was given."""
    given = [one.holds for one in found]
    return Finding(next(one for one in order if one in given), separator.join(one.evidence for one in found))
