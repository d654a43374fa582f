"""Section 4.4, Figure 6: MultiMNIST over noise levels."""

from excessmtl.paper.claims.judging import Check, Finding, both, every, excess, some
from excessmtl.paper.claims.measures import advantage, clean_weight, high_noise
from excessmtl.paper.claims.rules import declines_monotonically, favours_clean, favours_noisy, opposite, stays_flat
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.methods import ADAPTIVE_RIVALS, SINGLE_TASK, UNIFORM
from excessmtl.paper.subjects import Subject

_NOTHING = 0.01


@claim(
    "4.4, Fig. 6",
    "The clean accuracy of all adaptive methods but ExcessMTL falls monotonically with noise.",
    on="multimnist",
)
def rivals_decline(subject: Subject) -> Finding:
    """For each rival the clean accuracy at the highest noise level is more than 1 point below that without noise (90 %
    interval above 0), and no step from one level to the next gains half a point.
    """
    return every(ADAPTIVE_RIVALS, lambda shown: declines_monotonically(subject, shown))


@claim("4.4, Fig. 6", "They fall because they give the noisy task excessive weight.", on="multimnist")
def rivals_favour_noisy(subject: Subject) -> Finding:
    """For each rival the clean weight at the highest noise level is below 0.5, and at least 0.05 lower than without
    noise, 90 % interval above 0.
    """
    return every(ADAPTIVE_RIVALS, lambda shown: favours_noisy(subject, shown))


@claim("4.4, Fig. 6", "In extreme cases the clean task is left with no weight at all.", on="multimnist")
def no_weight_left(subject: Subject) -> Finding:
    """At the highest noise level at least one rival's mean clean weight is below 0.01."""

    def test(shown: str) -> Check:
        weight = clean_weight(subject, shown, high_noise(subject, shown)).mean()
        return Check(weight < _NOTHING, f"clean weight {weight:.3f}")

    return some(ADAPTIVE_RIVALS, test)


@claim("4.4, Fig. 6", "Only ExcessMTL gives the noisy task less weight than the clean one.", on="multimnist")
def only_excess_favours_clean(subject: Subject) -> Finding:
    """At the highest noise level ExcessMTL's mean clean weight is above 0.55, and no rival's is."""
    own = excess(lambda shown: favours_clean(subject, shown))
    return both(own, every(ADAPTIVE_RIVALS, lambda shown: opposite(favours_clean(subject, shown))))


@claim("4.4, Fig. 6", "ExcessMTL keeps its clean accuracy at all noise levels: a flat line.", on="multimnist")
def excess_is_flat(subject: Subject) -> Finding:
    """At no noise level is its clean accuracy more than 1 point below that without noise with the 90 % interval above
    0.
    """
    return excess(lambda shown: stays_flat(subject, shown))


@claim("4.4, Fig. 6", "Uniform weighting withstands the noise as well.", on="multimnist")
def uniform_is_flat(subject: Subject) -> Finding:
    """At no noise level is its clean accuracy more than 1 point below that without noise with the 90 % interval above
    0.
    """
    return every([UNIFORM], lambda shown: stays_flat(subject, shown))


@claim(
    "4.4", "It does so because the two tasks of MultiMNIST hardly interfere, even if one is all noise.", on="multimnist"
)
def little_interference(subject: Subject) -> Finding:
    """Without noise and at the highest noise level of both, uniform weighting's clean accuracy is not more than 1 point
    below the single-task network's with the 90 % interval above 0.
    """

    def test(shown: str) -> Check:
        noise = min(high_noise(subject, shown), high_noise(subject, SINGLE_TASK))
        behind = {level: advantage(subject, SINGLE_TASK, shown, level) for level in (0.0, noise)}
        text = ", ".join(f"{difference} at noise {level:g}" for level, difference in behind.items())
        return Check(not any(difference.is_clear for difference in behind.values()), f"behind alone by {text}")

    return every([UNIFORM], test)


@claim("4.4, Fig. 6", "Uniform weighting is slightly worse than ExcessMTL.", on="multimnist")
def uniform_is_behind(subject: Subject) -> Finding:
    """At the highest noise level ExcessMTL's mean clean accuracy is above uniform weighting's."""

    def test(shown: str) -> Check:
        noise = high_noise(subject, shown)
        ahead = advantage(subject, shown, UNIFORM, noise)
        return Check(ahead.mean > 0, f"ahead by {ahead} at noise {noise:g}")

    return excess(test)
