"""The tables of docs/choosing.md, from files that other commands wrote.

    excessmtl sweep studies/all-methods.yaml
    python -m research.choosing [runs/all-methods]    # the tables; with runs, docs/data/choosing.csv first

What a step costs is in `docs/data/speed/methods_cpu.json` (`python -m excessmtl.lab.speed methods`), what is known of a
method in `excessmtl.methods.catalogue`, and the errors of the groups in `docs/data/groups.csv`
(`python examples/groups.py --out docs/data/groups.csv`).
"""

import re
from math import isfinite
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from excessmtl.files import write_whole
from excessmtl.lab.cli.app import plain_errors
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.compare.comparison import Spread
from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.regret import ITSELF, regrets_of
from excessmtl.lab.compare.table import Table
from excessmtl.methods import names
from excessmtl.methods.catalogue import CATALOGUE, rows
from research import DOCS
from research.performance import read

SCORES = DOCS / "data" / "choosing.csv"
GROUPS = DOCS / "data" / "groups.csv"
_KEYS = ["benchmark", "method"]


def scores_of(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per benchmark and method: what noise in the other tasks takes from the clean ones, `lost`.

    That is the method's regret against itself without noise: points of accuracy, or percent of the error without noise,
    the mean over the seeds; infinite where a run with noise has diverged.
    """
    tables = []
    for label in runs["label"].unique():
        regrets = regrets_of(runs, label)
        if regrets is not None:
            own = regrets.table[regrets.table["rival"] == ITSELF]
            tables.append(own.assign(method=label, lost=own["regret"].round(4)))
    if not any(map(len, tables)):
        raise ValueError("no method has runs without noise and with it, which the table compares")
    return pd.concat(tables)[["benchmark", "noise", "unit", "method", "lost", "seeds"]].sort_values(_KEYS)


def lost_to_noise(scores: pd.DataFrame, method: str) -> str:
    """What noise costs the clean tasks, benchmark by benchmark, with plain losses; with robust ones where known."""
    units, texts = {"points": "points", "percent": "%"}, []
    for label, words in ((method, ""), (f"{method} + robust loss", "with robust losses ")):
        own = scores[scores["method"] == label].itertuples()
        lost = [f"{row.lost:.1f} {units[row.unit]}" if isfinite(row.lost) else "diverged" for row in own]
        texts += [words + ", ".join(lost)] if lost else []
    return "; ".join(texts)


def methods_table(scores: pd.DataFrame) -> Table:
    """Every method: where it comes from, what it needs and costs, what noise costs it."""
    costs = read("methods_cpu")["ratio"]
    records = [
        row
        | {
            "method": f"[`{row['method']}`]({CATALOGUE[row['method']].link})",
            "cost": costs.get(row["method"]),
            "lost to noise": lost_to_noise(scores, row["method"]) or "not measured",
        }
        for row in rows()
    ]
    words = dict.fromkeys(("lost to noise", "scale-free", "good for"), "")
    return Table.of_records(records, {"method": "", "needs": "", "cost": "x{:.2f}".format, **words})


def groups_table() -> Table:
    """The errors of both methods for each group with bad records, and the difference, paired by seed."""
    errors = pd.read_csv(GROUPS).set_index(["bad_records", "seed", "method"])["error"].unstack(sort=False)
    lines = []
    for noisy, own in errors.groupby(level="bad_records", sort=False):
        change = Spread.of(own["excess"] - own["uniform"])
        means = [f"{own[method].mean():.2f}" for method in ("uniform", "excess")]
        lines.append([str(noisy), *means, f"{change.mean:+.2f} ± {change.deviation:.2f}"])
    return Table.of_texts("", ["bad records in", "`uniform` ↓", "`excess` ↓", "difference ↓"], lines)


def names_table() -> Table:
    """What LibMTL and TorchJD call our methods, where that is another name or means something else."""
    columns, rows = ["LibMTL", "TorchJD", "here", "mind"], []
    for *cells, note in names.rows():
        if note or len(set(re.findall(r"\w+", " ".join(cells).lower().replace("_", "")))) > 1:
            rows.append([*(re.sub(r"\w+", r"`\g<0>`", cell) for cell in cells), note])
    return Table.of_texts("", columns, rows, columns)


PAGE = Page(
    DOCS / "choosing.md",
    {"methods": lambda: methods_table(pd.read_csv(SCORES)), "groups": groups_table, "names": names_table},
)


def main(runs: Annotated[Path | None, typer.Argument()] = None) -> None:
    """Write the tables of docs/choosing.md; first the scores of a sweep's runs, where their folder is given.

    Methods that the sweep has no runs of keep their scores.
    """
    if runs is not None:
        new = scores_of(collect(runs))
        before = pd.read_csv(SCORES) if SCORES.exists() else new
        every = pd.concat([before[~before["method"].isin(new["method"])], new]).sort_values(_KEYS)
        write_whole(SCORES, every.to_csv(index=False).encode())
    PAGE.write()


if __name__ == "__main__":
    typer.run(plain_errors(main))
