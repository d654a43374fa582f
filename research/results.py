"""What docs/results.md shows: `python -m research.results [RUNS_DIR...]`.

With folders of runs it first keeps what the page needs in docs/data/study: `runs.csv.gz`, and the thinned course of the
runs that figures and claims ask for. Only planned runs are kept, and those of a later folder stand in for all of an
earlier one with the same label on the same data; docs/data/study may be one.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from excessmtl.files import atomic_write, write_whole
from excessmtl.lab.cli.app import plain_errors
from excessmtl.lab.compare.collect import csv_text, read_epochs, read_steps, thinned
from excessmtl.lab.compare.measures import Measure, Row, rows_of, score_measures
from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.compare.table import Cell, Table
from excessmtl.lab.paper.claims.verdicts import verdicts
from excessmtl.lab.paper.figures import training
from excessmtl.lab.paper.registry import registry
from excessmtl.lab.paper.subjects import COMPARED, DATA, METHODS, Runs
from excessmtl.lab.runs.summary import QUANTITIES
from excessmtl.lab.studies.study import read_study
from research import DOCS, newest, publish_runs, with_code

STUDY = DOCS / "data" / "study"
_NAMES = {"multimnist": "MultiMNIST", "office-home": "PACS", "sarcos": "SARCOS", "synthetic-rooms": "rooms"}
"""Benchmarks in the headings of columns, where they are not their names; `office-home` was run on PACS."""
_HIGH = 0.8  # a level that all data was run at
_PER_EPOCH = 20
_SHOWN = {training.COURSE_NOISE: COMPARED, training.RISK_NOISE: training.ESTIMATORS}
"""Noise level -> the methods whose course on MultiMNIST is drawn or judged."""


def settings_of(runs: Runs) -> list[Setting]:
    """The data of the runs, the paper's first, with the paper's names of the methods as labels."""
    wanted = dict.fromkeys([*DATA, *sorted(set(runs.frame.benchmark))])
    found = {subject.setting.name: subject for name in wanted for subject in runs.subjects(name)}
    return [replace(own.setting, runs=own.runs.assign(label=own.runs.shown)) for own in found.values()]


def scores_table(settings: Sequence[Setting], group: str) -> Table:
    """A row per method, a column per data set: the mean without noise, and at noise 0.8.

    `group`: "clean" or "overall". Where tasks have metrics of different kinds, the clean ones have a column each.
    """
    columns = {}
    for setting in settings:
        rows = rows_of(setting)
        for measure in score_measures(setting):
            if measure.key == f"{group}_score" or (group == "clean" and measure.key[6:] in setting.clean_tasks):
                task = "" if measure.key == f"{group}_score" else f", {measure.key[6:]}"
                name = f"{_NAMES.get(setting.benchmark, setting.benchmark.replace('-', ' '))}{task}"
                columns[f"{name}{measure.suffix}"] = _ends(rows, measure)
    methods = [name for name in METHODS if any(name in own for own in columns.values())]
    rows_of_texts = [[name, *(own.get(name, "") for own in columns.values())] for name in methods]
    return Table.of_texts("", ["method", *columns], rows_of_texts)


def _ends(rows: Sequence[Row], measure: Measure) -> dict[str, str]:
    """Method -> its means without noise and at noise 0.8; the best of the latter is bold."""
    cells = {(row.label, row.noise): row.cells[measure.key] for row in rows}
    texts = {}
    for label in dict.fromkeys(row.label for row in rows):
        ends = [cells.get((label, level), Cell("")) for level in (0.0, _HIGH)]
        means = [f"{cell.spread.mean:.{measure.digits}f}" for cell in ends if cell.spread and cell.spread.count]
        if len(means) == len(ends):
            texts[label] = f"{means[0]} → **{means[1]}**" if ends[1].best else f"{means[0]} → {means[1]}"
    return texts


def claims_part(claims: pd.DataFrame) -> str:
    """How many claims hold, the numbers of those that do, and the claims that do not."""
    plural = "hold", "do not hold", "are undecided", "were not tried"
    words = dict(zip(("holds", "does not hold", "undecided", "not tried"), plural, strict=True))
    numbers = {word: claims["number"][claims["verdict"] == word].tolist() for word in words}
    sentences = [f"Of {len(claims)} claims {', '.join(f'{len(numbers[own])} {words[own]}' for own in words)}."]
    for word in ("holds", "undecided"):
        if numbers[word]:
            sentences.append(f"These {words[word]}: {', '.join(map(str, numbers[word]))}.")
    failed = claims[claims["verdict"] == "does not hold"].to_dict("records")
    table = Table.of_records(failed, {"number": "d", "where": "", "claim": ""})
    return f"{' '.join(sentences)} These do not hold:\n\n{table.as_markdown()}"


@cache
def _runs() -> Runs:
    return Runs.read(STUDY)


PAGE = Page(
    DOCS / "results.md",
    {
        "claims": lambda: claims_part(pd.read_csv(STUDY / "claims.csv")),
        "clean": lambda: with_code(scores_table(settings_of(_runs()), "clean"), _runs().frame),
        "overall": lambda: with_code(scores_table(settings_of(_runs()), "overall"), _runs().frame),
    },
)


def planned_and_newest(every: Sequence[Runs]) -> Runs:
    """The runs that studies plan; of those with one label on one data set, the last folder's alone."""
    frame = newest([own.frame for own in every], ["benchmark", "source", "label"])
    studies = (DOCS.parent / "studies" / "results").glob("*.yaml")
    plans = {(run.benchmark, run.name, run.noise, run.seed) for path in studies for run in read_study(path).runs}
    keys = frame[["benchmark", "label", "noise", "seed"]].itertuples(index=False, name=None)
    return Runs(frame[[key in plans for key in keys]].reset_index(drop=True))


def publish(runs: Runs, out: Path) -> None:
    """Write the table of the runs, and the courses that are shown; those that were there before go."""
    publish_runs(runs.frame, out / "runs.csv.gz")
    wanted = [
        run
        for subject in runs.subjects("multimnist")
        for noise, methods in _SHOWN.items()
        for _, run in subject.of(methods, noise).dropna(subset="steps_path").iterrows()
    ]
    before = {path.parent for path in out.rglob("steps.npz")}
    for folder in before - {out / run.folder for run in wanted}:
        shutil.rmtree(folder)
    for run in wanted:
        folder = out / run.folder
        if run.steps_path.resolve().parent == folder.resolve():
            continue  # published before
        steps = read_steps(run.steps_path)
        rows = _PER_EPOCH * int(run.epochs)
        tables = {name: thinned(getattr(steps, name), rows).to_numpy(np.float32) for name in QUANTITIES}
        with atomic_write(folder / "steps.npz") as file:
            np.savez_compressed(file, tasks=np.array(list(steps.losses)), **tables)
        epochs = read_epochs(run.metrics_path).to_csv(index=False, float_format="%.6g")
        write_whole(folder / "metrics.csv", epochs.encode())


def write_numbers(runs: Runs, study: Path, figures: Path) -> None:
    """Figures with their numbers, and claims."""
    for entry in registry().values():
        for name, drawing in entry.drawings(runs):
            replace(drawing, pictures={}).save(study, name)
            replace(drawing, tables={}).save(figures, name, kinds=("png",))
    write_claims(runs, study / "claims.csv")


def write_claims(runs: Runs, path: Path) -> None:
    """Every claim with its verdict, its rule and the numbers."""
    write_whole(path, csv_text(pd.DataFrame([asdict(one) for one in verdicts(runs)])).encode())


def main(folders: Annotated[list[Path] | None, typer.Argument()] = None) -> None:
    """Write all that docs/results.md shows, and the page; first keep the runs of folders, where some are given."""
    if folders:
        publish(planned_and_newest([Runs.read(folder) for folder in folders]), STUDY)
    write_numbers(Runs.read(STUDY), STUDY, DOCS / "figures")
    PAGE.write()


if __name__ == "__main__":
    typer.run(plain_errors(main))
