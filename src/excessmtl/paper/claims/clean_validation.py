"""Section 4.3, Figure 5: does a clean validation set help? MOML and MGDA on Office-Home."""

from excessmtl.paper.claims.judging import Check, Finding, every, excess
from excessmtl.paper.claims.measures import CLEAN, OVERALL, Lacking, advantage, clean_weight, high_noise, levels
from excessmtl.paper.claims.rules import beats_all, declines, favours_clean, opposite
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.methods import MGDA, MOML
from excessmtl.paper.subjects import Subject

_LOW, _HIGH = 0.4, 0.6


def _ahead(subject: Subject, shown: str, found: list[float]) -> Check:
    """MOML's overall lead over MGDA, averaged over noise levels."""
    if not found:
        raise Lacking(f"runs of {shown} at these noise levels")
    leads = {level: advantage(subject, shown, MGDA, level, OVERALL).mean for level in found}
    text = ", ".join(f"{lead:+.1f} at {level:g}" for level, lead in leads.items())
    return Check(sum(leads.values()) > 0, f"overall score above MGDA's by {text}")


@claim("4.3, Fig. 5", "In spite of its clean data, MOML is largely impacted by noise.", on="office-home")
def moml_suffers(subject: Subject) -> Finding:
    """MOML's overall and its clean score at the highest noise level are both more than 1 point below those without
    noise, 90 % interval above 0.
    """

    def test(shown: str) -> Check:
        overall, clean = (declines(subject, shown, pick=pick) for pick in (OVERALL, CLEAN))
        return Check(overall.ok and clean.ok, f"{overall.text}; {clean.text}")

    return every([MOML], test)


@claim(
    "4.3, Fig. 5", "With a clean validation set, considerable weight still goes to the noisy task.", on="office-home"
)
def moml_weights(subject: Subject) -> Finding:
    """At the highest noise level MOML's clean weight is at most 0.05 above uniform weighting's."""
    return every([MOML], lambda shown: opposite(favours_clean(subject, shown)))


@claim("4.3, Fig. 5", "At low noise MOML is worse than MGDA: its validation set tells less.", on="office-home")
def worse_at_low_noise(subject: Subject) -> Finding:
    """Averaged over the noise levels up to 0.4, MOML's mean overall score is below MGDA's."""
    low = [level for level in levels(subject, MOML) if level <= _LOW]
    return every([MOML], lambda shown: opposite(_ahead(subject, shown, low)))


@claim("4.3, Fig. 5", "At high noise MOML is slightly better than MGDA.", on="office-home")
def better_at_high_noise(subject: Subject) -> Finding:
    """Averaged over the noise levels from 0.6 on, MOML's mean overall score is above MGDA's."""
    high = [level for level in levels(subject, MOML) if level >= _HIGH]
    return every([MOML], lambda shown: _ahead(subject, shown, high))


@claim("4.3, Fig. 5", "MOML's weights depend less on the noise level than MGDA's.", on="office-home")
def steadier_weights(subject: Subject) -> Finding:
    """The range of the mean clean weight over the noise levels is smaller for MOML than for MGDA."""

    def span(shown: str) -> float:
        high_noise(subject, shown)
        means = [clean_weight(subject, shown, level).mean() for level in levels(subject, shown)]
        return float(max(means) - min(means))

    return every(
        [MOML],
        lambda shown: Check(span(shown) < span(MGDA), f"range {span(shown):.2f}, MGDA's {span(MGDA):.2f}"),
    )


@claim("4.3, Fig. 5", "ExcessMTL is better than both at every noise level.", on="office-home")
def excess_beats_both(subject: Subject) -> Finding:
    """At each noise level ExcessMTL's mean overall score is above MOML's and MGDA's."""

    def test(shown: str) -> Check:
        high_noise(subject, shown)
        found = [beats_all(subject, shown, (MOML, MGDA), level, OVERALL) for level in levels(subject, shown)]
        return Check(all(check.ok for check in found), "; ".join(check.text for check in found))

    return excess(test)
