"""What the runs answer to a question about a claim, how several answers become one, and the list of questions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from excessmtl.lab.compare.comparison import UNDECIDED, Answer

WORST_FIRST: tuple[Answer | None, ...] = (False, None, UNDECIDED, True)


class Lacking(Exception):
    """The runs that a question needs are not there; the message says which."""


@dataclass(frozen=True)
class Finding:
    """Whether something holds (None: the runs that could tell are missing), and the numbers."""

    holds: Answer | None
    evidence: str


Question = Callable[..., Finding]
"""Of the runs of a method and what claims.yaml adds. Raises `Lacking`."""
QUESTIONS: dict[str, Question] = {}


def question(ask: Question) -> Question:
    """Make a function a question that claims.yaml can name."""
    QUESTIONS[ask.__name__] = ask
    return ask


def all_hold(answers: Iterable[Answer | None]) -> Answer | None:
    """No where one answer is no; yes where all are yes."""
    return min(answers, key=WORST_FIRST.index, default=True)


def opposite(answer: Answer | None) -> Answer | None:
    """What is undecided stays so, and what is missing."""
    return answer if answer in (UNDECIDED, None) else not answer


def first(findings: Sequence[Finding], order: Sequence[Answer | None] = WORST_FIRST, separator: str = "; ") -> Finding:
    """All evidence, and the first answer in this order that was given."""
    answer = min((finding.holds for finding in findings), key=order.index)
    return Finding(answer, separator.join(finding.evidence for finding in findings))


def most(findings: Sequence[Finding]) -> Finding:
    """Yes where more than half are yes; no where they could not be, whatever the open ones are."""
    answers = [finding.holds for finding in findings]
    evidence = first(findings).evidence
    if 2 * answers.count(True) > len(answers):
        return Finding(True, evidence)
    if 2 * answers.count(False) >= len(answers):
        return Finding(False, evidence)
    return Finding(None if None in answers else UNDECIDED, evidence)
