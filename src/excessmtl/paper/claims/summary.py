"""Section 4.4, the summary: claims about all benchmarks together.

They are judged on those of MultiMNIST, Office-Home and SARCOS that are in the runs, at least two of them. NYUv2 is left
out, since its tasks have no common score.
"""

from collections.abc import Callable

from excessmtl.paper.claims.judging import Check, Finding, excess, guarded, in_words
from excessmtl.paper.claims.measures import OVERALL, advantage, high_noise
from excessmtl.paper.claims.rules import beats_all, best_rival, declines, stays_flat
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.collected import Runs
from excessmtl.paper.methods import ADAPTIVE_RIVALS, UNIFORM
from excessmtl.paper.subjects import TITLES, Subject

_WITH_COMMON_SCORE = ("multimnist", "office-home", "sarcos")


def _data(runs: Runs, stand_ins: bool) -> dict[str, Subject]:
    """One subject for each data set of the paper in the runs, by its title; stand-ins only where they are asked for."""
    found = {wanted: runs.subjects(wanted) for wanted in _WITH_COMMON_SCORE}
    usable = {wanted: [s for s in own if s.is_the_papers or stand_ins] for wanted, own in found.items()}
    return {TITLES[wanted] if own[0].is_the_papers else own[0].title: own[0] for wanted, own in usable.items() if own}


def _on_all(runs: Runs, judge: Callable[[dict[str, Subject]], Finding]) -> Finding:
    own, all_of_them = _data(runs, stand_ins=False), _data(runs, stand_ins=True)
    enough = len(own) >= 2
    missing = Finding(None, f"of the paper's data the runs have only {', '.join(own) or 'none'}")
    finding = guarded(judge, own) if enough else missing
    if len(all_of_them) == len(own):
        return finding
    aside = guarded(judge, all_of_them)
    return Finding(finding.holds, f"{finding.evidence}. With stand-ins, {in_words(aside)}")


def _everywhere(data: dict[str, Subject], ask: Callable[[Subject, str], Check]) -> Finding:
    """One form of ExcessMTL passes on all data sets."""

    def test(shown: str) -> Check:
        found = {name: ask(subject, shown) for name, subject in data.items()}
        text = ", ".join(f"{name}: {check.text}" for name, check in found.items())
        return Check(all(check.ok for check in found.values()), text)

    return excess(test)


@claim("4.4", "Label noise in one task harms all tasks that are trained with it.")
def noise_harms_all(runs: Runs) -> Finding:
    """On each data set more than half of the methods the paper compares itself with (the rivals and uniform weighting)
    have a clearly worse clean score at the highest noise level than without noise (1 point of accuracy or 10 % of an
    error, 90 % interval above 0).
    """

    def judge(data: dict[str, Subject]) -> Finding:
        names = (*ADAPTIVE_RIVALS, UNIFORM)
        harmed = {name: [m for m in names if declines(subject, m).ok] for name, subject in data.items()}
        text = "; ".join(f"{name}: {', '.join(found) or 'none'}" for name, found in harmed.items())
        return Finding(all(2 * len(found) > len(names) for found in harmed.values()), f"harmed on {text}")

    return _on_all(runs, judge)


@claim("4.4", "With noise, ExcessMTL has a higher overall performance than the other adaptive methods, everywhere.")
def high_overall(runs: Runs) -> Finding:
    """On each data set its mean overall score at the highest noise level is better than every rival's."""

    def ask(subject: Subject, shown: str) -> Check:
        return beats_all(subject, shown, ADAPTIVE_RIVALS, high_noise(subject, shown), OVERALL)

    return _on_all(runs, lambda data: _everywhere(data, ask))


@claim("4.4", "Without noise, ExcessMTL is competitive: its robustness costs nothing.")
def competitive(runs: Runs) -> Finding:
    """On each data set its overall score without noise is not clearly worse than the best rival's (1 point of accuracy
    or 10 % of an error, 90 % interval above 0).
    """

    def ask(subject: Subject, shown: str) -> Check:
        best = best_rival(subject, ADAPTIVE_RIVALS, 0.0, OVERALL)
        behind = advantage(subject, best, shown, 0.0, OVERALL)
        return Check(not behind.is_clear, f"behind {best} by {behind}")

    return _on_all(runs, lambda data: _everywhere(data, ask))


@claim("4.4, C.2", "Uniform weighting withstands noise on some data and not on other; ExcessMTL does everywhere.")
def consistent(runs: Runs) -> Finding:
    """Uniform weighting's clean score is clearly worse with noise than without on at least one data set and not on at
    least one; ExcessMTL's on none, at any level.
    """

    def judge(data: dict[str, Subject]) -> Finding:
        uniform = {name: declines(subject, UNIFORM) for name, subject in data.items()}
        varies = len({check.ok for check in uniform.values()}) == 2
        own = _everywhere(data, stays_flat)
        text = ", ".join(f"{name}: {'worse' if check.ok else 'holds'}" for name, check in uniform.items())
        holds = None if own.holds is None and varies else bool(varies and own.holds)
        return Finding(holds, f"Uniform: {text}. {own.evidence}")

    return _on_all(runs, judge)
