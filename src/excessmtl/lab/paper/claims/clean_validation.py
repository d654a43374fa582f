"""Section 4.3, Figure 5: does a clean validation set help? MOML and MGDA on Office-Home."""

from functools import partial

from excessmtl.lab.paper.claims.judging import Claim, Finding, all_of, every, excess, no
from excessmtl.lab.paper.claims.measures import OVERALL, Lacking, advantage, clean_weight, levels
from excessmtl.lab.paper.claims.rules import at_every_level, beats_all, declines, favours_clean
from excessmtl.lab.paper.methods import MGDA, MOML
from excessmtl.lab.paper.subjects import Subject


def _ahead_of_mgda(subject: Subject, shown: str, least: float, most: float) -> Finding:
    """The overall lead over MGDA, averaged over noise levels."""
    found = [level for level in sorted(subject.of(shown).noise.unique()) if least <= level <= most]
    if not found:
        raise Lacking(f"runs of {shown} at these noise levels")
    leads = {level: advantage(subject, shown, MGDA, level, OVERALL).mean for level in found}
    text = ", ".join(f"{lead:+.1f} at {level:g}" for level, lead in leads.items())
    return Finding(sum(leads.values()) > 0, f"overall score above MGDA's by {text}")


def _steadier_weights_than_mgda(subject: Subject, shown: str) -> Finding:
    spans = []
    for name in (shown, MGDA):
        means = [clean_weight(subject, name, level).mean() for level in levels(subject, name)]
        spans.append(max(means) - min(means))
    return Finding(spans[0] < spans[1], f"range {spans[0]:.2f}, MGDA's {spans[1]:.2f}")


_claim = partial(Claim, "4.3, Fig. 5", "office-home")
CLAIMS = (
    _claim(
        "In spite of its clean data, MOML is largely impacted by noise.",
        "MOML's overall and its clean score at the highest noise level are both more than 1 point below those without "
        "noise, 90 % interval above 0.",
        every([MOML], all_of(partial(declines, pick=OVERALL), declines)),
    ),
    _claim(
        "With a clean validation set, considerable weight still goes to the noisy task.",
        "At the highest noise level MOML's clean weight is at most 0.05 above uniform weighting's.",
        every([MOML], no(favours_clean)),
    ),
    _claim(
        "At low noise MOML is worse than MGDA: its validation set tells less.",
        "Averaged over the noise levels up to 0.4, MOML's mean overall score is below MGDA's.",
        every([MOML], no(partial(_ahead_of_mgda, least=0.0, most=0.4))),
    ),
    _claim(
        "At high noise MOML is slightly better than MGDA.",
        "Averaged over the noise levels from 0.6 on, MOML's mean overall score is above MGDA's.",
        every([MOML], partial(_ahead_of_mgda, least=0.6, most=1.0)),
    ),
    _claim(
        "MOML's weights depend less on the noise level than MGDA's.",
        "The range of the mean clean weight over the noise levels is smaller for MOML than for MGDA.",
        every([MOML], _steadier_weights_than_mgda),
    ),
    _claim(
        "ExcessMTL is better than both at every noise level.",
        "At each noise level ExcessMTL's overall score is above MOML's and MGDA's, 90 % intervals above 0.",
        excess(at_every_level(partial(beats_all, rivals=(MOML, MGDA), pick=OVERALL))),
    ),
)
