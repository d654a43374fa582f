"""Answers to the questions that claims ask: yes, no, or that the seeds leave it undecided."""

from collections.abc import Iterable
from typing import Literal

UNDECIDED: Literal["undecided"] = "undecided"
Answer = bool | Literal["undecided"]


def all_hold(answers: Iterable[Answer]) -> Answer:
    """No where one answer is no; yes where all are yes."""
    found = list(answers)
    return False if False in found else UNDECIDED if UNDECIDED in found else True


def opposite(answer: Answer) -> Answer:
    """What is undecided stays so."""
    return answer if answer == UNDECIDED else not answer


def more_than_half(answers: Iterable[Answer]) -> Answer:
    """Yes where more than half are yes; no where they could not be, whatever the undecided ones are."""
    found = list(answers)
    sure, possible = found.count(True), len(found) - found.count(False)
    return True if 2 * sure > len(found) else UNDECIDED if 2 * possible > len(found) else False
