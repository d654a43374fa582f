"""Section 4.3, Figure 3: weights and accuracy while MultiMNIST trains, at noise 0.8."""

from collections.abc import Callable

import pandas as pd

from excessmtl.paper.claims.judging import Check, Finding, every, excess
from excessmtl.paper.claims.measures import CLEAN, NOISY, OVERALL, WEIGHT, Lacking, advantage, clean_weight, spread
from excessmtl.paper.claims.rules import beats_all, declines
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.collected import has_steps, steps_of
from excessmtl.paper.methods import ADAPTIVE_RIVALS, GRADNORM, GROUPDRO, IMTL, MGDA, UNIFORM
from excessmtl.paper.subjects import Subject

NOISE = 0.8
_SUBSTANTIAL, _NEARLY = 0.6, 0.1


def _noisy_weight(subject: Subject, shown: str) -> Callable[[float, float], float]:
    """The noisy tasks' mean weight between two shares of training, over all seeds."""
    runs = [run for _, run in subject.of(shown, NOISE).iterrows() if has_steps(run)]
    if not runs:
        raise Lacking(f"run folders of {shown} at noise {NOISE:g}")
    shares = []
    for run in runs:
        weights = steps_of(run).weights
        shares.append((weights[list(run.noisy_tasks)].sum(axis=1) / weights.sum(axis=1)).reset_index(drop=True))
    curve = pd.concat(shares, axis=1).mean(axis=1)
    return lambda start, end: float(curve.iloc[int(start * len(curve)) : max(int(end * len(curve)), 1)].mean())


@claim("4.3, Fig. 3", "GradNorm and GroupDRO rapidly give the noisy task substantial weight.", on="multimnist")
def rapid(subject: Subject) -> Finding:
    """Over the first quarter of training at noise 0.8 the noisy task has on average more than 0.6 of the weight."""

    def test(shown: str) -> Check:
        weight = _noisy_weight(subject, shown)(0, 0.25)
        return Check(weight > _SUBSTANTIAL, f"noisy weight {weight:.2f} over the first quarter")

    return every((GRADNORM, GROUPDRO), test)


@claim("4.3, Fig. 3", "IMTL and MGDA begin with much weight on the noisy task and end nearly uniform.", on="multimnist")
def first_noisy_then_uniform(subject: Subject) -> Finding:
    """The noisy task's mean weight is above 0.6 over the first tenth of training, and within 0.1 of 0.5 over the last
    tenth.
    """

    def test(shown: str) -> Check:
        weight = _noisy_weight(subject, shown)
        first, last = weight(0, 0.1), weight(0.9, 1)
        ok = first > _SUBSTANTIAL and abs(last - 0.5) < _NEARLY
        return Check(ok, f"noisy weight {first:.2f} over the first tenth, {last:.2f} over the last")

    return every((IMTL, MGDA), test)


@claim(
    "4.3, Fig. 3",
    "Their emphasis on the noisy task makes the four rivals much worse on the clean task.",
    on="multimnist",
)
def clean_task_suffers(subject: Subject) -> Finding:
    """For each of GradNorm, MGDA, GroupDRO and IMTL, the clean accuracy at noise 0.8 is more than 1 point below that
    without noise, 90 % interval above 0.
    """
    return every(ADAPTIVE_RIVALS, lambda shown: declines(subject, shown, NOISE))


@claim("4.3, Fig. 3", "ExcessMTL gives most weight to the clean task, from the beginning on.", on="multimnist")
def clean_from_the_start(subject: Subject) -> Finding:
    """The clean task has on average more than 0.55 of the weight both over the first and over the last tenth of
    training at noise 0.8.
    """

    def test(shown: str) -> Check:
        weight = _noisy_weight(subject, shown)
        first, last = 1 - weight(0, 0.1), 1 - weight(0.9, 1)
        text = f"clean weight {first:.2f} over the first tenth, {last:.2f} over the last"
        return Check(min(first, last) > 0.5 + WEIGHT, text)

    return excess(test)


@claim(
    "4.3, Fig. 3",
    "Less emphasis on the noisy task reduces overfitting: ExcessMTL also learns it better.",
    on="multimnist",
)
def learns_noisy_better(subject: Subject) -> Finding:
    """At noise 0.8 the noisy task has less than half of the weight in the last epoch, and its accuracy is more than 1
    point above uniform weighting's, 90 % interval above 0.
    """

    def test(shown: str) -> Check:
        ahead = advantage(subject, shown, UNIFORM, NOISE, NOISY)
        weight = 1 - clean_weight(subject, shown, NOISE).mean()
        text = f"noisy weight {weight:.2f}, {spread(subject, shown, NOISE, NOISY)}, ahead of uniform by {ahead}"
        return Check(ahead.is_clear and weight < 0.5, text)

    return excess(test)


@claim("4.3, Fig. 3", "ExcessMTL is least affected by the noise and has the best overall performance.", on="multimnist")
def superior(subject: Subject) -> Finding:
    """At noise 0.8 its mean accuracy is above that of all four rivals, both on the clean task and overall."""

    def test(shown: str) -> Check:
        found = [beats_all(subject, shown, ADAPTIVE_RIVALS, NOISE, pick) for pick in (CLEAN, OVERALL)]
        return Check(all(check.ok for check in found), "; ".join(check.text for check in found))

    return excess(test)
