"""Every empirical claim of the paper (Secs. 3.3, 4.3, 4.4, appendix C), judged by collected runs.

Each claim is in `paper.claims`, with the rule it is judged by. A verdict is what the rule gives, whichever way it goes:
"undecided" where the intervals over the seeds leave it open, "not tried" without runs of at least three seeds on the
paper's data at the paper's scale.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from excessmtl.lab.paper.claims import (
    appendix,
    clean_validation,
    conceptual,
    dynamics,
    estimation,
    loss_profile,
    multimnist,
    nyuv2,
    office_home,
    summary,
)
from excessmtl.lab.paper.claims.answers import UNDECIDED, Answer
from excessmtl.lab.paper.claims.judging import Claim
from excessmtl.lab.paper.collected import Runs

Judgement = Literal["holds", "does not hold", "undecided", "not tried"]
_WORDS: dict[Answer | None, Judgement] = {
    True: "holds",
    False: "does not hold",
    UNDECIDED: "undecided",
    None: "not tried",
}
_SECTION_3, _SECTION_4_3 = (conceptual,), (estimation, dynamics, loss_profile, clean_validation)
_SECTION_4_4 = (multimnist, office_home, nyuv2, summary)
_PARTS = (*_SECTION_3, *_SECTION_4_3, *_SECTION_4_4, appendix)
CLAIMS: tuple[Claim, ...] = tuple(claim for part in _PARTS for claim in part.CLAIMS)
"""In the order of the paper, which numbers them."""


@dataclass(frozen=True)
class Verdict:
    """What runs say about one claim."""

    number: int
    where: str
    """Section and figure of the paper."""
    claim: str
    """In our words."""
    verdict: Judgement
    evidence: str
    """The numbers behind it."""
    rule: str
    """What "holds" means here."""


def verdicts(frame: pd.DataFrame, root: Path | None = None) -> list[Verdict]:
    """A verdict on each claim, in the order of the paper.

    Args:
        frame: runs as `analysis.collect.collect` gives them, of any benchmarks.
        root: the folder they were collected from. Claims about what happens during training need the run folders and
            are "not tried" without.
    """
    return judge_all(Runs.of(frame, root))


def judge_all(runs: Runs) -> list[Verdict]:
    """The same for runs that know where their folders are."""
    found = [(claim, claim.finding(runs)) for claim in CLAIMS]
    return [
        Verdict(number, claim.where, claim.text, _WORDS[finding.holds], finding.evidence, claim.rule)
        for number, (claim, finding) in enumerate(found, start=1)
    ]
