"""What a claim is, and how answers about single methods become a finding: over methods, forms and data sets.

Claims about ExcessMTL are about Algorithm 1. The paper does not say everywhere whether excess risks were divided by
their initial values, so such a claim holds where it does for one of the two forms; ours is shown with them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from excessmtl.lab.compare.comparison import UNDECIDED, Answer
from excessmtl.lab.paper.methods import PAPER_EXCESS, ROBUST

_WORST_FIRST: tuple[Answer | None, ...] = (False, None, UNDECIDED, True)


class Lacking(Exception):
    """The runs a rule needs are not there; the message says which."""


def all_hold(answers: Iterable[Answer]) -> Answer:
    """No where one answer is no; yes where all are yes."""
    return min(answers, key=_WORST_FIRST.index, default=True)


def opposite(answer: Answer) -> Answer:
    """What is undecided stays so."""
    return answer if answer == UNDECIDED else not answer


def more_than_half(answers: Iterable[Answer]) -> Answer:
    """Yes where more than half are yes; no where they could not be, whatever the undecided ones are."""
    found = list(answers)
    sure, possible = found.count(True), len(found) - found.count(False)
    return True if 2 * sure > len(found) else UNDECIDED if 2 * possible > len(found) else False


@dataclass(frozen=True)
class Finding:
    """Whether something holds (None: the runs that could tell are missing), and the numbers."""

    holds: Answer | None
    evidence: str


Judge = Callable[[Any], Finding]
"""Of what the claim is about: a `Subject`, or all `Runs`."""
Ask = Callable[..., Finding]
"""Of the same and the name of a method. Raises `Lacking` where runs are missing."""


def every(names: Sequence[str], ask: Ask) -> Judge:
    """Holds where all methods pass; one that fails settles it, one that is missing leaves it open."""
    return lambda data: _first(_answers(names, ask, data), _WORST_FIRST)


def some(names: Sequence[str], ask: Ask) -> Judge:
    """Holds where one method passes; one that is missing might have."""
    return lambda data: _first(_answers(names, ask, data), (True, None, UNDECIDED, False))


def excess(ask: Ask) -> Judge:
    """Holds where one form of the paper's ExcessMTL passes; the robust one is shown too."""

    def judge(data: Any) -> Finding:
        *paper, ours = _answers([*PAPER_EXCESS, ROBUST], ask, data)
        decided = _first(paper, (True, UNDECIDED, False, None))
        return Finding(decided.holds, f"{decided.evidence}; {ours.evidence}")

    return judge


def both(first: Judge, second: Judge) -> Judge:
    """Holds where both do."""
    return lambda data: _first([first(data), second(data)], _WORST_FIRST, ". ")


def all_of(*asks: Ask) -> Ask:
    """Passes where all of the questions do."""
    return lambda data, shown, **more: _first([ask(data, shown, **more) for ask in asks], _WORST_FIRST)


def no(ask: Ask) -> Ask:
    """The same numbers, the other answer."""

    def opposite_of(data: Any, shown: str) -> Finding:
        found = ask(data, shown)
        return Finding(None if found.holds is None else opposite(found.holds), found.evidence)

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
    first = min((one.holds for one in found), key=order.index)
    return Finding(first, separator.join(one.evidence for one in found))
