"""Which studies are out of date: `python -m research.due` says so; with `--run` it runs those, and writes their pages.

A study is up to date where all the runs that it plans are published, and were made by code of today's fingerprint. Runs
go to a folder named by the fingerprint: finished ones are never run again, and a command that was stopped goes on.
"""

import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from excessmtl.lab.cli.app import plain_errors
from excessmtl.lab.compare.collect import read_table
from excessmtl.lab.data.tasks import PLAIN
from excessmtl.lab.runs.record import code_of
from excessmtl.lab.studies.study import read_study
from research import DOCS, choosing, results, robustness

STUDIES = DOCS.parent / "studies"
KEPT = {"results": results.STUDY / "runs.csv.gz", "robustness": robustness.DATA / "runs.csv.gz"}
"""The folder of studies -> the published table of their runs."""
STUDIED = [*(path for name in KEPT for path in sorted((STUDIES / name).glob("*.yaml"))), STUDIES / "all-methods.yaml"]
Codes = Mapping[tuple[Any, ...], str]
"""Runs -> the fingerprint of their code."""


def published(study: Path) -> Codes:
    """The code of every run that is published; a study need not name the optimiser."""
    if study.parent.name not in KEPT:
        frame = pd.read_csv(choosing.SCORES)
        frame["label"] = frame["method"].where(frame["loss"] == PLAIN, frame["method"] + " + robust loss")
        frame = frame.loc[frame.index.repeat(frame["seeds"])]
        frame = frame.assign(
            seed=frame.groupby(list(choosing.KEYS)).cumcount(), noise_kind="uniform", optimiser="adamw"
        )
    else:
        frame = read_table(KEPT[study.parent.name]).replace({"benchmark": {"pacs": "office-home"}})
    keys = frame[["benchmark", "label", "noise", "seed", "noise_kind", "optimiser"]].itertuples(index=False, name=None)
    known = dict(zip(keys, frame["code"], strict=True))
    return known | {(*key[:-1], None): code for key, code in known.items()}


def out_of_date(study: Path, codes: Codes, now: str) -> str:
    """How many of its runs are missing or by other code; nothing where there are none."""
    runs = read_study(study).runs
    keys = [(run.benchmark, run.name, run.noise, run.seed, run.noise_kind, run.optimiser) for run in runs]
    found = Counter(codes.get(key, "missing") for key in keys)
    others = ", ".join(f"{count} {code}" for code, count in sorted(found.items()) if code != now)
    return others and f"{found.total() - found[now]} of {found.total()} runs: {others}"


def main(run: bool = False, options: Annotated[str, typer.Option(help="of `excessmtl sweep`")] = "") -> None:
    """Say which studies are out of date; run them and write their pages."""
    now, due = code_of(), []
    for study in STUDIED:
        why = out_of_date(study, published(study), now)
        print(f"{study.relative_to(STUDIES)}: {f'out of date, {why}' if why else 'up to date'}")
        due += [study] if why else []
    folders: dict[str, list[Path]] = {name: [] for name in (*KEPT, STUDIES.name)}
    for study in due if run else []:
        out = Path("runs") / now / study.relative_to(STUDIES).with_suffix("")
        command = [sys.executable, "-m", "excessmtl", "sweep", str(study), "--out", str(out), *shlex.split(options)]
        subprocess.run(command, check=True)
        folders[study.parent.name].append(out)
    for name, write in (("results", results.main), ("robustness", robustness.main), (STUDIES.name, choosing.main)):
        if folders[name]:
            write([*([KEPT[name].parent] if name in KEPT else []), *folders[name]])


if __name__ == "__main__":
    typer.run(plain_errors(main))
