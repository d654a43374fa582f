"""Section 4.4, Figure 7: Office-Home over noise levels."""

from functools import partial

from excessmtl.lab.paper.claims.judging import Claim, Finding, both, every, excess, no
from excessmtl.lab.paper.claims.measures import CLEAN, Lacking, harm, high_noise, mean, spread
from excessmtl.lab.paper.claims.rules import favours_clean
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, PAPER_EXCESS, UNIFORM
from excessmtl.lab.paper.subjects import Subject


def _least_affected(subject: Subject, shown: str) -> Finding:
    noise = high_noise(subject, shown)
    own = harm(subject, shown, noise)
    others = {rival: harm(subject, rival, noise).mean for rival in (*ADAPTIVE_RIVALS, UNIFORM)}
    least = min(others, key=lambda rival: others[rival])
    text = f"worse by {own} at noise {noise:g}; {least}, next, {others[least]:+.1f}"
    return Finding(own.mean < others[least], text)


def _fails(subject: Subject, shown: str) -> Finding:
    text = f"{spread(subject, shown, 0.0, CLEAN)} without noise, {spread(subject, shown, 1.0, CLEAN)} at noise 1"
    return Finding(mean(subject, shown, 1.0, CLEAN) < 0.5 * mean(subject, shown, 0.0, CLEAN), text)


def _uniform_is_beaten(subject: Subject) -> Finding:
    noise = high_noise(subject, UNIFORM)
    own, scores = mean(subject, UNIFORM, noise, CLEAN), {}
    for shown in (*ADAPTIVE_RIVALS, *PAPER_EXCESS):
        try:
            scores[shown] = mean(subject, shown, noise, CLEAN)
        except Lacking:
            continue
    if len(scores) <= len(ADAPTIVE_RIVALS):
        raise Lacking(f"runs of all methods at noise {noise:g}")
    better = [shown for shown, score in scores.items() if score > own]
    text = f"better than uniform's {100 * own:.1f} at noise {noise:g}: {', '.join(better) or 'none'}"
    return Finding(2 * len(better) > len(scores), f"{text} ({len(better)} of {len(scores)})")


_claim = partial(Claim, "4.4, Fig. 7", "office-home")
CLAIMS = (
    _claim(
        "ExcessMTL's clean tasks are least affected by noise.",
        "From no noise to the highest level its mean clean accuracy falls by less than that of every rival and of "
        "uniform weighting.",
        excess(_least_affected),
    ),
    _claim(
        "With purely random labels (noise 1), all other adaptive methods fail completely.",
        "At noise 1 each rival's mean clean accuracy is less than half of what it is without noise.",
        every(ADAPTIVE_RIVALS, _fails),
    ),
    _claim(
        "With noise, uniform weighting is worse than most adaptive methods.",
        "At the highest noise level more than half of the adaptive methods (the rivals and both forms of the paper's "
        "ExcessMTL) have a higher mean clean accuracy than uniform weighting.",
        _uniform_is_beaten,
    ),
    _claim(
        "ExcessMTL is the only adaptive method that gives the noisy task little weight.",
        "At the highest noise level ExcessMTL's mean clean weight is more than 0.05 above uniform weighting's (0.75), "
        "and no rival's is.",
        both(excess(favours_clean), every(ADAPTIVE_RIVALS, no(favours_clean))),
    ),
)
