"""What the report on runs of the paper's figures shows besides: the figures by their names, verdicts on the claims."""

from markupsafe import Markup

from excessmtl.lab.paper.claims.verdicts import verdicts
from excessmtl.lab.paper.registry import registry
from excessmtl.lab.paper.subjects import DATA, Runs
from excessmtl.lab.reports.pictures import pictures_in
from excessmtl.lab.reports.sections import Collected, Section, fill


def _figures(runs: Collected) -> Markup | None:
    """The pictures in the folder, those of figures with what they show."""
    summaries = {name: entry.summary for name, entry in registry().items()}
    pictures = pictures_in(runs.folder)
    for picture in pictures:
        own = picture["name"].partition("_")[0]
        if own in summaries:
            picture["name"] = f"{summaries[own]} ({picture['name']})"
    about = "Drawn from these runs, or computed, by excessmtl reproduce."
    return fill("excessmtl.lab.reports", "pictures.html.j2", about=about, pictures=pictures) if pictures else None


def _claims(runs: Collected) -> Markup | None:
    """Nothing where no claim was tried: they are about the paper's data, at its scale."""
    named = Runs.of(runs.frame, runs.folder)
    if not any(subject.is_at_the_papers_scale for wanted in DATA for subject in named.subjects(wanted)):
        return None
    judged = verdicts(named)
    tried = any(claim.verdict != "not tried" for claim in judged)
    return fill("excessmtl.lab.paper", "claims.html.j2", verdicts=judged) if tried else None


SECTIONS = (Section("Figures", "pictures", _figures), Section("The paper's claims", "claims", _claims))
