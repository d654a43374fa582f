"""Section 4.4, Figure 7: Office-Home over noise levels."""

from excessmtl.paper.claims.judging import Check, Finding, both, every, excess
from excessmtl.paper.claims.measures import CLEAN, Lacking, harm, high_noise, mean, spread
from excessmtl.paper.claims.rules import favours_clean, opposite
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.methods import ADAPTIVE_RIVALS, PAPER_EXCESS, UNIFORM
from excessmtl.paper.subjects import Subject


@claim("4.4, Fig. 7", "ExcessMTL's clean tasks are least affected by noise.", on="office-home")
def least_affected(subject: Subject) -> Finding:
    """From no noise to the highest level its mean clean accuracy falls by less than that of every rival and of uniform
    weighting.
    """

    def test(shown: str) -> Check:
        noise = high_noise(subject, shown)
        own = harm(subject, shown, noise)
        others = {rival: harm(subject, rival, noise).mean for rival in (*ADAPTIVE_RIVALS, UNIFORM)}
        least = min(others, key=lambda rival: others[rival])
        return Check(
            own.mean < others[least], f"worse by {own} at noise {noise:g}; {least}, next, {others[least]:+.1f}"
        )

    return excess(test)


@claim(
    "4.4, Fig. 7", "With purely random labels (noise 1), all other adaptive methods fail completely.", on="office-home"
)
def rivals_fail(subject: Subject) -> Finding:
    """At noise 1 each rival's mean clean accuracy is less than half of what it is without noise."""

    def test(shown: str) -> Check:
        text = f"{spread(subject, shown, 0.0, CLEAN)} without noise, {spread(subject, shown, 1.0, CLEAN)} at noise 1"
        return Check(mean(subject, shown, 1.0, CLEAN) < 0.5 * mean(subject, shown, 0.0, CLEAN), text)

    return every(ADAPTIVE_RIVALS, test)


@claim("4.4, Fig. 7", "With noise, uniform weighting is worse than most adaptive methods.", on="office-home")
def uniform_is_beaten(subject: Subject) -> Finding:
    """At the highest noise level more than half of the adaptive methods (the rivals and both forms of the paper's
    ExcessMTL) have a higher mean clean accuracy than uniform weighting.
    """
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


@claim(
    "4.4, Fig. 7", "ExcessMTL is the only adaptive method that gives the noisy task little weight.", on="office-home"
)
def only_excess_favours_clean(subject: Subject) -> Finding:
    """At the highest noise level ExcessMTL's mean clean weight is more than 0.05 above uniform weighting's (0.75), and
    no rival's is.
    """
    own = excess(lambda shown: favours_clean(subject, shown))
    return both(own, every(ADAPTIVE_RIVALS, lambda shown: opposite(favours_clean(subject, shown))))
