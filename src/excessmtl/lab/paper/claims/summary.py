"""Section 4.4, the summary: claims about all benchmarks together.

They are judged on those of MultiMNIST, Office-Home and SARCOS that are in the runs, at least two of them. NYUv2 is left
out, since its tasks have no common score.
"""

from collections.abc import Callable

from excessmtl.lab.compare.comparison import UNDECIDED, Answer
from excessmtl.lab.paper.claims.judging import Ask, Finding, Judge, all_hold, excess, guarded, in_words, more_than_half
from excessmtl.lab.paper.claims.questions import declines, stays_flat
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, UNIFORM
from excessmtl.lab.paper.subjects import DATA, Runs, Subject

_WITH_COMMON_SCORE = ("multimnist", "office-home", "sarcos")
_Data = dict[str, Subject]
"""One subject for each data set of the paper, by its title."""


def _data(runs: Runs, stand_ins: bool) -> _Data:
    """What is in the runs; stand-ins only where they are asked for."""
    found = {wanted: runs.subjects(wanted) for wanted in _WITH_COMMON_SCORE}
    usable = {wanted: [s for s in own if s.is_at_the_papers_scale or stand_ins] for wanted, own in found.items()}
    return {
        DATA[wanted].title if own[0].is_the_papers else own[0].title: own[0] for wanted, own in usable.items() if own
    }


def on_all(judge: Callable[[_Data], Finding]) -> Judge:
    """Judge by the data sets of the paper that are in the runs; what stand-ins say is evidence."""

    def judge_runs(runs: Runs) -> Finding:
        own, all_of_them = _data(runs, stand_ins=False), _data(runs, stand_ins=True)
        missing = Finding(None, f"of the paper's data at its scale the runs have only {', '.join(own) or 'none'}")
        finding = guarded(judge, own) if len(own) >= 2 else missing
        if len(all_of_them) == len(own):
            return finding
        aside = guarded(judge, all_of_them)
        return Finding(finding.holds, f"{finding.evidence}. With stand-ins, {in_words(aside)}")

    return judge_runs


def everywhere(ask: Ask) -> Judge:
    """One form of ExcessMTL passes on all data sets."""

    def asked(data: _Data, shown: str) -> Finding:
        found = {name: ask(subject, shown) for name, subject in data.items()}
        text = ", ".join(f"{name}: {one.evidence}" for name, one in found.items())
        return Finding(all_hold(one.holds or False for one in found.values()), text)

    return excess(asked)


def noise_harms_most(data: _Data) -> Finding:
    """On each data set more than half of the other methods are clearly worse with noise."""
    names = (*ADAPTIVE_RIVALS, UNIFORM)
    harmed = {name: {m: _declines(subject, m) for m in names} for name, subject in data.items()}
    text = "; ".join(
        f"{name}: {', '.join(m for m, answer in found.items() if answer is True) or 'none'}"
        for name, found in harmed.items()
    )
    return Finding(all_hold(more_than_half(found.values()) for found in harmed.values()), f"harmed on {text}")


def only_excess_is_consistent(data: _Data) -> Finding:
    """Uniform weighting withstands noise on some data and not on other, ExcessMTL on all."""
    words = {True: "worse", False: "holds", UNDECIDED: UNDECIDED}
    uniform = {name: _declines(subject, UNIFORM) for name, subject in data.items()}
    text = ", ".join(f"{name}: {words[answer]}" for name, answer in uniform.items())
    answers = set(uniform.values())
    varies: Answer = True if {True, False} <= answers else UNDECIDED if UNDECIDED in answers else False
    own = everywhere(stays_flat)(data)
    holds = None if own.holds is None and varies else all_hold([varies, own.holds or False])
    return Finding(holds, f"Uniform: {text}. {own.evidence}")


def _declines(subject: Subject, shown: str) -> Answer:
    return declines(subject, shown).holds or False
