"""What the finished runs of a study say, in tables: to print, and as files beside the runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from excessmtl.analysis.collect import collect
from excessmtl.analysis.regret import can_compare, regret_table
from excessmtl.analysis.regret_summary import verdict, worst_regrets, write_regrets
from excessmtl.analysis.score_tables import score_tables
from excessmtl.analysis.table import TextTable
from excessmtl.files import atomic_write
from excessmtl.sweeps.folders import folder_of
from excessmtl.sweeps.study import Study

JUDGED = "excess"
"""The method whose regret is of interest: the default of the library."""


@dataclass(frozen=True)
class StudyTables:
    """Tables and sentences in reading order, and the files that hold them."""

    tables: Sequence[TextTable]
    notes: Sequence[str]
    files: Sequence[Path]


def study_runs(study: Study, out: Path) -> pd.DataFrame:
    """The finished runs of the study, as `collect` gives them; its folder may hold others."""
    frame = collect(out)
    return frame[frame["folder"].isin({str(folder_of(config)) for config in study.runs})].reset_index(drop=True)


def write_tables(study: Study, out: Path) -> StudyTables:
    """Writes `scores.md` and, where the study compares `excess` with others, `regret.csv` and `regret.md`."""
    frame = study_runs(study, out)
    seeds = frame["seed"].nunique()
    spread = "mean ± standard deviation over the seeds" if seeds > 1 else "one seed: small differences are luck"
    notes = [f"Test scores of the last epoch, {spread}. Clean weight: share of the clean tasks in the last epoch."]
    tables = score_tables(frame, list(dict.fromkeys(config.name for config in study.runs)))
    files = [out / "runs.csv", _write(out / "scores.md", tables, notes)]
    regrets = regret_table(frame, JUDGED) if can_compare(frame, JUDGED) else pd.DataFrame()
    if not regrets.empty:  # in a part of a study no two runs may be of the same seed and level
        worst, judgement = worst_regrets(regrets, JUDGED), verdict(regrets, JUDGED)
        write_regrets(regrets, out / "regret.csv")
        files += [out / "regret.csv", _write(out / "regret.md", worst, [judgement])]
        tables, notes = [*tables, *worst], [*notes, judgement]
    return StudyTables(tables, notes, files)


def _write(path: Path, tables: Sequence[TextTable], notes: Sequence[str]) -> Path:
    text = "\n".join(
        [*(f"{table.title}\n\n{table.as_markdown()}" for table in tables), *(f"{note}\n" for note in notes)]
    )
    with atomic_write(path) as file:
        file.write(text.encode())
    return path
