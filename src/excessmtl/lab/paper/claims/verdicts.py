"""Every empirical claim of the paper (Secs. 3.3, 4.3, 4.4, appendix C), judged by collected runs.

`claims.yaml` is the list: each claim with its rule in words, and the questions that are the rule. A verdict is what the
rule gives, whichever way it goes: "undecided" where the intervals over the seeds leave it open, "not tried" without
runs of at least three seeds on the paper's data at the paper's scale.

Claims about ExcessMTL are about Algorithm 1. The paper does not say everywhere whether excess risks were divided by
their initial values, so such a claim holds where it does for one of the two forms; ours is shown with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from excessmtl.lab.compare.comparison import UNDECIDED, Answer
from excessmtl.lab.paper.claims import questions, training  # noqa: F401, their questions are listed on import
from excessmtl.lab.paper.claims.findings import QUESTIONS, WORST_FIRST, Finding, Lacking, first, most, opposite
from excessmtl.lab.paper.claims.method_runs import MethodRuns, levels
from excessmtl.lab.paper.subjects import ADAPTIVE_RIVALS, DATA, PAPER_EXCESS, ROBUST, Runs, Subject

Judgement = Literal["holds", "does not hold", "undecided", "not tried"]
_WORDS: dict[Answer | None, Judgement] = {
    True: "holds",
    False: "does not hold",
    UNDECIDED: "undecided",
    None: "not tried",
}
_OF_A_METHOD = {True: "as claimed", False: "not as claimed", UNDECIDED: "undecided", None: "not in the runs"}
_OF_A_RULE = {
    True: "the rule is met",
    False: "the rule is not met",
    UNDECIDED: "the seeds leave it undecided",
    None: "the runs cannot tell",
}
_ONE_ENOUGH: tuple[Answer | None, ...] = (True, None, UNDECIDED, False)
"""One that is missing might have passed."""
_ONE_FORM: tuple[Answer | None, ...] = (True, UNDECIDED, False, None)
"""A form that was not run counts where there is no other."""
_MISSING_FIRST: tuple[Answer | None, ...] = (None, False, UNDECIDED, True)
"""A claim about several data sets is tried where all of them are."""
EXCESS = "ExcessMTL"
_MANY = 100
"""Tasks."""
Part = Mapping[str, Any]
"""Of a claim: whom it is about and what is asked, as claims.yaml explains."""


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


def verdicts(runs: Runs) -> list[Verdict]:
    """A verdict on each claim, in the order of the paper; those about the course of training need the run folders."""
    claims = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text(encoding="utf-8"))
    judged = []
    for number, claim in enumerate(claims.values(), start=1):
        finding = _finding(claim, runs)
        text = claim["where"], claim["claim"], _WORDS[finding.holds], finding.evidence, claim["rule"]
        judged.append(Verdict(number, *text))
    return judged


def _finding(claim: Mapping[str, Any], runs: Runs) -> Finding:
    """On the data that the claim is about; where it is about several, on each of them."""
    if "untold" in claim:
        return Finding(None, claim["untold"])
    if claim["data"] == "many tasks":
        subjects = [own for name in runs.frame.benchmark.unique() for own in runs.subjects(name)]
        large = [own for own in subjects if len(own.setting.tasks) >= _MANY]
        return _judged(claim["judged"], large[0]) if large else Finding(None, f"no data of {_MANY} tasks or more")
    return first([_on_data(claim["judged"], name, runs) for name in claim["data"]], _MISSING_FIRST, ". ")


def _on_data(parts: Sequence[Part], name: str, runs: Runs) -> Finding:
    """By the paper's own data at the paper's scale; what other runs say is evidence, not a verdict."""
    subjects = runs.subjects(name)
    finding = Finding(None, f"{DATA[name].title} at the paper's scale is not in the runs")
    if subjects and subjects[0].is_at_the_papers_scale:
        finding, subjects = _judged(parts, subjects[0]), subjects[1:]
    others = [(subject.title, _judged(parts, subject)) for subject in subjects]
    aside = [f"On {title}, {_OF_A_RULE[other.holds]}: {other.evidence}" for title, other in others]
    return Finding(finding.holds, ". ".join([finding.evidence, *aside]))


def _judged(parts: Sequence[Part], subject: Subject) -> Finding:
    """All parts of a claim must hold."""
    return first([_part(subject, **part) for part in parts], separator=". ")


def _part(
    subject: Subject, of: str | list[str], ask: Sequence[Any], noise: float | str = "highest", enough: str = "all"
) -> Finding:
    """Whether the methods are as claimed: all of them, most, one, or one form of ExcessMTL."""
    names = {EXCESS: (*PAPER_EXCESS, ROBUST), "rivals": ADAPTIVE_RIVALS}.get(str(of), of)
    findings = [_of_method(subject, shown, ask, noise) for shown in names]
    if of == EXCESS:
        decided = first(findings[:-1], _ONE_FORM)
        return Finding(decided.holds, f"{decided.evidence}; {findings[-1].evidence}")
    if enough == "most":
        return most(findings)
    return first(findings, _ONE_ENOUGH if enough == "one" else WORST_FIRST)


def _of_method(subject: Subject, shown: str, ask: Sequence[Any], noise: float | str) -> Finding:
    """All questions about one method."""
    try:
        known = levels(subject, shown) if isinstance(noise, str) else [noise]
        runs = [MethodRuns(subject, shown, level) for level in (known if noise == "every" else known[-1:])]
        finding = first([_answer(own, question) for own in runs for question in ask])
    except Lacking as lacking:
        return Finding(None, f"{shown}: not in the runs ({lacking})")
    return Finding(finding.holds, f"{shown}: {_OF_A_METHOD[finding.holds]}, {finding.evidence}")


def _answer(runs: MethodRuns, question: str | Mapping[str, Mapping[str, Any]]) -> Finding:
    """To one question: its name, or its name with arguments; `not` before the name asks for the opposite."""
    ((name, arguments),) = question.items() if isinstance(question, Mapping) else [(question, {})]
    finding = QUESTIONS[name.removeprefix("not ")](runs, **arguments)
    return replace(finding, holds=opposite(finding.holds)) if name.startswith("not ") else finding
