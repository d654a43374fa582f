"""Section 4.4, Figure 6: MultiMNIST over noise levels."""

from excessmtl.studies.claimed.judging import Check, Finding, both, every, excess, on
from excessmtl.studies.claimed.measures import Lacking, advantage, clean_weight, high_noise
from excessmtl.studies.claimed.rules import declines_monotonically, favours_clean, favours_noisy, opposite, stays_flat
from excessmtl.studies.claims import claim
from excessmtl.studies.paper.methods import ADAPTIVE_RIVALS, UNIFORM
from excessmtl.studies.paper.subjects import Subject

_NOTHING = 0.01


@claim("4.4, Fig. 6", "The clean accuracy of all adaptive methods but ExcessMTL falls monotonically with noise.")
@on("multimnist")
def rivals_decline(subject: Subject) -> Finding:
    """For each rival the clean accuracy at the highest noise level is more than 1 point below that without noise (90 %
    interval above 0), and no step from one level to the next gains half a point.
    """
    return every(ADAPTIVE_RIVALS, lambda shown: declines_monotonically(subject, shown))


@claim("4.4, Fig. 6", "They fall because they give the noisy task excessive weight.")
@on("multimnist")
def rivals_favour_noisy(subject: Subject) -> Finding:
    """For each rival the clean weight at the highest noise level is below 0.5, and at least 0.05 lower than without
    noise, 90 % interval above 0.
    """
    return every(ADAPTIVE_RIVALS, lambda shown: favours_noisy(subject, shown))


@claim("4.4, Fig. 6", "In extreme cases the clean task is left with no weight at all.")
@on("multimnist")
def no_weight_left(subject: Subject) -> Finding:
    """At the highest noise level at least one rival's mean clean weight is below 0.01."""
    weights = {}
    for shown in ADAPTIVE_RIVALS:
        try:
            weights[shown] = clean_weight(subject, shown, high_noise(subject, shown)).mean()
        except Lacking:
            continue
    if not weights:
        raise Lacking("runs of the rivals at high noise")
    return Finding(
        min(weights.values()) < _NOTHING, ", ".join(f"{name} {weight:.3f}" for name, weight in weights.items())
    )


@claim("4.4, Fig. 6", "Only ExcessMTL gives the noisy task less weight than the clean one.")
@on("multimnist")
def only_excess_favours_clean(subject: Subject) -> Finding:
    """At the highest noise level ExcessMTL's mean clean weight is above 0.55, and no rival's is."""
    own = excess(lambda shown: favours_clean(subject, shown))
    return both(own, every(ADAPTIVE_RIVALS, lambda shown: opposite(favours_clean(subject, shown))))


@claim("4.4, Fig. 6", "ExcessMTL keeps its clean accuracy at all noise levels: a flat line.")
@on("multimnist")
def excess_is_flat(subject: Subject) -> Finding:
    """At no noise level is its clean accuracy more than 1 point below that without noise with the 90 % interval above
    0.
    """
    return excess(lambda shown: stays_flat(subject, shown))


@claim("4.4, Fig. 6", "Uniform weighting withstands the noise as well.")
@on("multimnist")
def uniform_is_flat(subject: Subject) -> Finding:
    """The same rule for uniform weighting."""
    return every([UNIFORM], lambda shown: stays_flat(subject, shown))


@claim("4.4, Fig. 6", "Uniform weighting is slightly worse than ExcessMTL.")
@on("multimnist")
def uniform_is_behind(subject: Subject) -> Finding:
    """At the highest noise level ExcessMTL's mean clean accuracy is above uniform weighting's."""

    def test(shown: str) -> Check:
        noise = high_noise(subject, shown)
        ahead = advantage(subject, shown, UNIFORM, noise)
        return Check(ahead.mean > 0, f"ahead by {ahead} at noise {noise:g}")

    return excess(test)
