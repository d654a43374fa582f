"""Section 4.4, Figure 6: MultiMNIST over noise levels."""

from functools import partial

from excessmtl.lab.paper.claims.answers import all_hold, opposite
from excessmtl.lab.paper.claims.judging import Claim, Finding, both, every, excess, no, some
from excessmtl.lab.paper.claims.measures import advantage, clean_weight, high_noise
from excessmtl.lab.paper.claims.rules import declines_monotonically, favours_clean, favours_noisy, stays_flat
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, SINGLE_TASK, UNIFORM
from excessmtl.lab.paper.subjects import Subject

_NOTHING = 0.01


def _has_no_clean_weight(subject: Subject, shown: str) -> Finding:
    weight = clean_weight(subject, shown, high_noise(subject, shown)).mean()
    return Finding(bool(weight < _NOTHING), f"clean weight {weight:.3f}")


def _close_to_single_task(subject: Subject, shown: str) -> Finding:
    noise = min(high_noise(subject, shown), high_noise(subject, SINGLE_TASK))
    behind = {level: advantage(subject, SINGLE_TASK, shown, level) for level in (0.0, noise)}
    text = ", ".join(f"{difference} at noise {level:g}" for level, difference in behind.items())
    return Finding(all_hold(opposite(difference.clear) for difference in behind.values()), f"behind alone by {text}")


def _ahead_of_uniform(subject: Subject, shown: str) -> Finding:
    noise = high_noise(subject, shown)
    ahead = advantage(subject, shown, UNIFORM, noise)
    return Finding(ahead.ahead, f"ahead by {ahead} at noise {noise:g}")


_claim = partial(Claim, "4.4, Fig. 6", "multimnist")
CLAIMS = (
    _claim(
        "The clean accuracy of all adaptive methods but ExcessMTL falls monotonically with noise.",
        "For each rival the clean accuracy at the highest noise level is more than 1 point below that without noise "
        "(90 % interval above 0), and no step from one level to the next gains half a point.",
        every(ADAPTIVE_RIVALS, declines_monotonically),
    ),
    _claim(
        "They fall because they give the noisy task excessive weight.",
        "For each rival the clean weight at the highest noise level is below 0.5, and at least 0.05 lower than without "
        "noise, 90 % interval above 0.",
        every(ADAPTIVE_RIVALS, favours_noisy),
    ),
    _claim(
        "In extreme cases the clean task is left with no weight at all.",
        "At the highest noise level at least one rival's mean clean weight is below 0.01.",
        some(ADAPTIVE_RIVALS, _has_no_clean_weight),
    ),
    _claim(
        "Only ExcessMTL gives the noisy task less weight than the clean one.",
        "At the highest noise level ExcessMTL's mean clean weight is above 0.55, and no rival's is.",
        both(excess(favours_clean), every(ADAPTIVE_RIVALS, no(favours_clean))),
    ),
    _claim(
        "ExcessMTL keeps its clean accuracy at all noise levels: a flat line.",
        "At every noise level it is decided that its clean accuracy is not more than 1 point below that without noise: "
        "the 90 % interval lies within 1 point, or above.",
        excess(stays_flat),
    ),
    _claim(
        "Uniform weighting withstands the noise as well.",
        "At every noise level it is decided that its clean accuracy is not more than 1 point below that without noise: "
        "the 90 % interval lies within 1 point, or above.",
        every([UNIFORM], stays_flat),
    ),
    Claim(
        "4.4",
        "multimnist",
        "It does so because the two tasks of MultiMNIST hardly interfere, even if one is all noise.",
        "Without noise and at the highest noise level of both, it is decided that uniform weighting's clean accuracy "
        "is not more than 1 point below the single-task network's: the 90 % interval lies within 1 point, or above.",
        every([UNIFORM], _close_to_single_task),
    ),
    _claim(
        "Uniform weighting is slightly worse than ExcessMTL.",
        "At the highest noise level ExcessMTL's clean accuracy is above uniform weighting's, 90 % interval above 0.",
        excess(_ahead_of_uniform),
    ),
)
