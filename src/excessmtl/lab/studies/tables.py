"""What the finished runs of a study say, in tables: to print, and as files next to the runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from excessmtl.files import write_whole
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.compare.measures import DELTA_M, MEAN_RANK, SECONDS, summary_table
from excessmtl.lab.compare.regret import regrets_of, verdict, write_regrets
from excessmtl.lab.compare.settings import settings
from excessmtl.lab.compare.table import Table
from excessmtl.lab.runs.folder import folder_of
from excessmtl.lab.studies.study import Study
from excessmtl.lab.studies.sweep import CHOSEN

_LEFT_OUT = [measure.heading for measure in (DELTA_M, MEAN_RANK, SECONDS)] + ["seeds"]
"""Columns that a terminal has no room for."""


@dataclass(frozen=True)
class StudyTables:
    """Tables and sentences in reading order, for a terminal, and the files that hold all of them."""

    tables: Sequence[Table]
    notes: Sequence[str]
    files: Sequence[Path]


def write_tables(study: Study, out: Path) -> StudyTables:
    """Writes `scores.md` and, where the study compares `excess` with others, `regret.csv`."""
    frame = collect(out)
    wanted = {folder_of(config).as_posix() for config in study.runs}
    frame = frame[frame["folder"].isin(wanted)].reset_index(drop=True)  # the folder may hold other runs
    seeds = frame["seed"].nunique()
    spread = "mean ± standard deviation over the seeds" if seeds > 1 else "one seed: small differences are luck"
    notes, files = [f"Test scores of the last epoch, {spread}."], [out / "runs.csv", out / "scores.md"]
    compared = settings(frame)
    if any(setting.noisy_tasks for setting in compared):
        notes.append("Clean: tasks that no noise was added to. Clean weight: their share in the last epoch.")
    if study.tune is not None:
        files.append(out / CHOSEN)
        notes.append(
            "Chosen for each setting, noise level and method by the error on noisy validation labels: "
            f"{', '.join(study.tune.values)} ({len(study.tune.seeds)} tuning seeds): {CHOSEN}."
        )
    regrets = regrets_of(frame)
    if regrets is not None and len(regrets.table):  # in a part of a study no two runs may be of the same seed and level
        files.append(write_regrets(regrets.table, out / "regret.csv"))
        notes.append(verdict(regrets.table, regrets.method))
    complete = [summary_table(setting) for setting in compared]
    parts = [*(f"{table.title}\n\n{table.as_markdown()}" for table in complete), *(f"{note}\n" for note in notes)]
    write_whole(out / "scores.md", "\n".join(parts).encode())
    return StudyTables([table.without(_LEFT_OUT) for table in complete], notes, files)
