"""Section 4.4, the summary: claims about all benchmarks together.

They are judged on those of MultiMNIST, Office-Home and SARCOS that are in the runs, at least two of them. NYUv2 is left
out, since its tasks have no common score.
"""

from collections.abc import Callable
from functools import partial

from excessmtl.lab.paper.claims.answers import UNDECIDED, Answer, all_hold, more_than_half
from excessmtl.lab.paper.claims.judging import Ask, Claim, Finding, Judge, excess, guarded, in_words
from excessmtl.lab.paper.claims.measures import OVERALL
from excessmtl.lab.paper.claims.rules import beats_all, declines, not_behind_the_best, stays_flat
from excessmtl.lab.paper.collected import Runs
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, UNIFORM
from excessmtl.lab.paper.subjects import TITLES, Subject

_WITH_COMMON_SCORE = ("multimnist", "office-home", "sarcos")
_Data = dict[str, Subject]
"""One subject for each data set of the paper, by its title."""


def _data(runs: Runs, stand_ins: bool) -> _Data:
    """What is in the runs; stand-ins only where they are asked for."""
    found = {wanted: runs.subjects(wanted) for wanted in _WITH_COMMON_SCORE}
    usable = {wanted: [s for s in own if s.is_at_the_papers_scale or stand_ins] for wanted, own in found.items()}
    return {TITLES[wanted] if own[0].is_the_papers else own[0].title: own[0] for wanted, own in usable.items() if own}


def _on_all(judge: Callable[[_Data], Finding]) -> Judge:
    def judge_runs(runs: Runs) -> Finding:
        own, all_of_them = _data(runs, stand_ins=False), _data(runs, stand_ins=True)
        missing = Finding(None, f"of the paper's data at its scale the runs have only {', '.join(own) or 'none'}")
        finding = guarded(judge, own) if len(own) >= 2 else missing
        if len(all_of_them) == len(own):
            return finding
        aside = guarded(judge, all_of_them)
        return Finding(finding.holds, f"{finding.evidence}. With stand-ins, {in_words(aside)}")

    return judge_runs


def _everywhere(ask: Ask) -> Judge:
    """One form of ExcessMTL passes on all data sets."""

    def asked(data: _Data, shown: str) -> Finding:
        found = {name: ask(subject, shown) for name, subject in data.items()}
        text = ", ".join(f"{name}: {one.evidence}" for name, one in found.items())
        return Finding(all_hold(one.holds or False for one in found.values()), text)

    return excess(asked)


def _noise_harms_most(data: _Data) -> Finding:
    names = (*ADAPTIVE_RIVALS, UNIFORM)
    harmed = {name: {m: _declines(subject, m) for m in names} for name, subject in data.items()}
    text = "; ".join(
        f"{name}: {', '.join(m for m, answer in found.items() if answer is True) or 'none'}"
        for name, found in harmed.items()
    )
    return Finding(all_hold(more_than_half(found.values()) for found in harmed.values()), f"harmed on {text}")


def _only_excess_is_consistent(data: _Data) -> Finding:
    words = {True: "worse", False: "holds", UNDECIDED: UNDECIDED}
    uniform = {name: _declines(subject, UNIFORM) for name, subject in data.items()}
    text = ", ".join(f"{name}: {words[answer]}" for name, answer in uniform.items())
    answers = set(uniform.values())
    varies: Answer = True if {True, False} <= answers else UNDECIDED if UNDECIDED in answers else False
    own = _everywhere(stays_flat)(data)
    holds = None if own.holds is None and varies else all_hold([varies, own.holds or False])
    return Finding(holds, f"Uniform: {text}. {own.evidence}")


def _declines(subject: Subject, shown: str) -> Answer:
    return declines(subject, shown).holds or False


_claim = partial(Claim, "4.4", None)
CLAIMS = (
    _claim(
        "Label noise in one task harms all tasks that are trained with it.",
        "On each data set more than half of the methods the paper compares itself with (the rivals and uniform "
        "weighting) have a clearly worse clean score at the highest noise level than without noise (1 point of "
        "accuracy or 10 % of an error, 90 % interval above 0).",
        _on_all(_noise_harms_most),
    ),
    _claim(
        "With noise, ExcessMTL has a higher overall performance than the other adaptive methods, everywhere.",
        "On each data set its overall score at the highest noise level is better than every rival's, 90 % interval "
        "above 0.",
        _on_all(_everywhere(partial(beats_all, pick=OVERALL))),
    ),
    _claim(
        "Without noise, ExcessMTL is competitive: its robustness costs nothing.",
        "On each data set it is decided that its overall score without noise is not clearly worse than the best "
        "rival's: the 90 % interval lies within 1 point of accuracy or 10 % of an error, or above.",
        _on_all(_everywhere(partial(not_behind_the_best, noise=0.0, pick=OVERALL))),
    ),
    Claim(
        "4.4, C.2",
        None,
        "Uniform weighting withstands noise on some data and not on other; ExcessMTL does everywhere.",
        "Uniform weighting's clean score is clearly worse with noise than without on at least one data set and not on "
        "at least one; ExcessMTL's on none, at any level. Each of these must be decided by the 90 % intervals.",
        _on_all(_only_excess_is_consistent),
    ),
)
