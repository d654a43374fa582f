"""Which studies are out of date: `python -m research.due` says so; with `--run` it runs those, and writes their pages.

A study is up to date where all its runs are published, and were made by code of today's fingerprint. Runs go to a
folder named by the fingerprint, so a command that was stopped goes on where it was.
"""

import shlex
import shutil
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
# The folder of studies -> the published table of their runs.
KEPT = {"results": results.STUDY / "runs.csv.gz", "robustness": robustness.DATA / "runs.csv.gz"}
STUDIED = [*(path for name in KEPT for path in sorted((STUDIES / name).glob("*.yaml"))), STUDIES / "all-methods.yaml"]
WRITE = {"results": results.main, "robustness": robustness.main, STUDIES.name: choosing.main}


def published(study: Path) -> dict[tuple[Any, ...], str]:
    """The fingerprint of the code of every run that is published; a study need not name the optimiser."""
    if table := KEPT.get(study.parent.name):
        frame = read_table(table).replace({"benchmark": {"pacs": "office-home"}})
    else:
        frame = choosing.runs_of(pd.read_csv(choosing.SCORES)).assign(noise_kind="uniform", optimiser="adamw")
        frame["label"] = frame["method"].where(frame["loss"] == PLAIN, frame["method"] + " + robust loss")
        frame["seed"] = frame.groupby(choosing.KEYS).cumcount()
    keys = frame[["benchmark", "label", "noise", "seed", "noise_kind", "optimiser"]].itertuples(index=False, name=None)
    known = dict(zip(keys, frame["code"], strict=True))
    return known | {(*key[:-1], None): code for key, code in known.items()}


def out_of_date(study: Path, codes: Mapping[tuple[Any, ...], str], now: str) -> str:
    """How many of its runs are missing or by other code; empty: none."""
    runs = read_study(study).runs
    keys = [(run.benchmark, run.name, run.noise, run.seed, run.noise_kind, run.optimiser) for run in runs]
    found = Counter(codes.get(key, "missing") for key in keys)
    others = ", ".join(f"{count} {code}" for code, count in sorted(found.items()) if code != now)
    return others and f"{found.total() - found[now]} of {found.total()} runs: {others}"


def main(run: bool = False, options: Annotated[str, typer.Option(help="Of `excessmtl sweep`.")] = "") -> None:
    """Say which studies are out of date; with --run, run them and write their pages."""
    now, made = code_of(), {kind: list[Path]() for kind in WRITE}
    for study in STUDIED:
        why, name = out_of_date(study, published(study), now), study.relative_to(STUDIES).with_suffix("")
        print(f"{name}: {f'out of date, {why}' if why else 'up to date'}", flush=True)
        folder = Path("runs") / now / name
        if run and why:
            command = [sys.executable, "-m", "excessmtl", "sweep", str(study), "--out", str(folder)]
            subprocess.run([*command, *shlex.split(options)], check=True)
            made[study.parent.name].append(folder)
            for checkpoint in [*folder.rglob("checkpoint")]:  # nearly all of what runs take on disk
                shutil.rmtree(checkpoint)
    for kind, folders in made.items():
        if folders:  # beside what is published, which they replace in part
            WRITE[kind]([*([KEPT[kind].parent] if kind in KEPT else []), *folders])


if __name__ == "__main__":
    typer.run(plain_errors(main))
