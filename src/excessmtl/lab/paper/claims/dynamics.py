"""Section 4.3, Figure 3: weights and accuracy while MultiMNIST trains, at noise 0.8."""

from collections.abc import Callable
from functools import partial

import pandas as pd

from excessmtl.lab.compare.courses import read_steps
from excessmtl.lab.paper.claims.answers import all_hold
from excessmtl.lab.paper.claims.judging import Claim, Finding, all_of, every, excess
from excessmtl.lab.paper.claims.measures import (
    NOISY,
    OVERALL,
    WEIGHT,
    Lacking,
    advantage,
    check_seeds,
    clean_weight,
    spread,
)
from excessmtl.lab.paper.claims.rules import beats_all, declines
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, GRADNORM, GROUPDRO, IMTL, MGDA, UNIFORM
from excessmtl.lab.paper.subjects import Subject

NOISE = 0.8
_SUBSTANTIAL, _NEARLY = 0.6, 0.1


def _noisy_weight(subject: Subject, shown: str) -> Callable[[float, float], float]:
    """The noisy tasks' mean weight between two shares of training, over all seeds."""
    shares = []
    for _, run in subject.of(shown, NOISE).dropna(subset="steps_path").iterrows():
        weights = read_steps(run.steps_path).weights
        shares.append(weights[list(run.noisy_tasks)].sum(axis=1) / weights.sum(axis=1))
    if not shares:
        raise Lacking(f"run folders of {shown} at noise {NOISE:g}")
    check_seeds(len(shares), shown, NOISE)
    curve = pd.concat(shares, axis=1).mean(axis=1)
    return lambda start, end: float(curve.iloc[int(start * len(curve)) : max(int(end * len(curve)), 1)].mean())


def _rapidly_substantial(subject: Subject, shown: str) -> Finding:
    weight = _noisy_weight(subject, shown)(0, 0.25)
    return Finding(weight > _SUBSTANTIAL, f"noisy weight {weight:.2f} over the first quarter")


def _first_noisy_then_uniform(subject: Subject, shown: str) -> Finding:
    weight = _noisy_weight(subject, shown)
    first, last = weight(0, 0.1), weight(0.9, 1)
    holds = first > _SUBSTANTIAL and abs(last - 0.5) < _NEARLY
    return Finding(holds, f"noisy weight {first:.2f} over the first tenth, {last:.2f} over the last")


def _clean_from_the_start(subject: Subject, shown: str) -> Finding:
    weight = _noisy_weight(subject, shown)
    first, last = 1 - weight(0, 0.1), 1 - weight(0.9, 1)
    text = f"clean weight {first:.2f} over the first tenth, {last:.2f} over the last"
    return Finding(min(first, last) > 0.5 + WEIGHT, text)


def _learns_noisy_better(subject: Subject, shown: str) -> Finding:
    ahead = advantage(subject, shown, UNIFORM, NOISE, NOISY)
    weight = 1 - clean_weight(subject, shown, NOISE).mean()
    text = f"noisy weight {weight:.2f}, {spread(subject, shown, NOISE, NOISY)}, ahead of uniform by {ahead}"
    return Finding(all_hold([ahead.clear, bool(weight < 0.5)]), text)


_claim = partial(Claim, "4.3, Fig. 3", "multimnist")
CLAIMS = (
    _claim(
        "GradNorm and GroupDRO rapidly give the noisy task substantial weight.",
        "Over the first quarter of training at noise 0.8 the noisy task has on average more than 0.6 of the weight.",
        every((GRADNORM, GROUPDRO), _rapidly_substantial),
    ),
    _claim(
        "IMTL and MGDA begin with much weight on the noisy task and end nearly uniform.",
        "The noisy task's mean weight is above 0.6 over the first tenth of training, and within 0.1 of 0.5 over the "
        "last tenth.",
        every((IMTL, MGDA), _first_noisy_then_uniform),
    ),
    _claim(
        "Their emphasis on the noisy task makes the four rivals much worse on the clean task.",
        "For each of GradNorm, MGDA, GroupDRO and IMTL, the clean accuracy at noise 0.8 is more than 1 point below "
        "that without noise, 90 % interval above 0.",
        every(ADAPTIVE_RIVALS, partial(declines, noise=NOISE)),
    ),
    _claim(
        "ExcessMTL gives most weight to the clean task, from the beginning on.",
        "The clean task has on average more than 0.55 of the weight both over the first and over the last tenth of "
        "training at noise 0.8.",
        excess(_clean_from_the_start),
    ),
    _claim(
        "Less emphasis on the noisy task reduces overfitting: ExcessMTL also learns it better.",
        "At noise 0.8 the noisy task has less than half of the weight in the last epoch, and its accuracy is more than "
        "1 point above uniform weighting's, 90 % interval above 0.",
        excess(_learns_noisy_better),
    ),
    _claim(
        "ExcessMTL is least affected by the noise and has the best overall performance.",
        "At noise 0.8 its accuracy is above that of all four rivals, both on the clean task and overall, 90 % "
        "intervals above 0.",
        excess(all_of(partial(beats_all, noise=NOISE), partial(beats_all, noise=NOISE, pick=OVERALL))),
    ),
)
