"""The tables of docs/choosing.md, from files that other commands wrote.

    excessmtl sweep studies/all-methods.yaml
    python -m research.choosing [RUNS...]    # the tables; with folders of runs, docs/data/choosing.csv first

Costs are by `python -m excessmtl.lab.speed methods`, errors of groups by `python examples/groups.py --out
docs/data/groups.csv`.
"""

import re
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from excessmtl.files import write_whole
from excessmtl.lab.cli.app import plain_errors
from excessmtl.lab.compare.collect import collect, csv_text
from excessmtl.lab.compare.comparison import BETTER, EQUIVALENT, UNDECIDED, WORSE, Spread
from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.regret import regrets_of
from excessmtl.lab.compare.table import Table
from excessmtl.methods import names
from excessmtl.methods.catalogue import CATALOGUE, rows
from research import DOCS, with_code
from research.performance import read
from research.robustness import TOLERANCES

SCORES = DOCS / "data" / "choosing.csv"
GROUPS = DOCS / "data" / "groups.csv"
BENCHMARKS = ("multimnist", "sarcos", "lidc")
RESULTS = {"no noise": (0, "plain", "overall"), "noise": (0.8, "plain", "clean"), "robust": (0.8, "robust", "clean")}
"""Columns of the table of methods: the share of bad labels, the kind of losses, the tasks that are compared."""
SHOWN = ("MultiMNIST, plain", "MultiMNIST, robust", "SARCOS, plain", "SARCOS, robust")
"""Columns of the table of scores: the benchmark, the kind of losses."""
KEYS = ["benchmark", "method", "noise", "loss", "tasks"]


def scores_of(runs: pd.DataFrame) -> pd.DataFrame:
    """The mean score of a method over its seeds, and how much better that is than `uniform` with the same losses.

    In points of accuracy, or in percent of the error of `uniform`; minus infinity, and no score, where a run has
    diverged. A row per benchmark, method, noise level, kind of losses and group of tasks ("clean", "overall").
    """
    tables = []
    for method, loss in runs[["method", "loss"]].drop_duplicates().itertuples(index=False):
        pair = runs[(runs["loss"] == loss) & runs["method"].isin([method, "uniform"])]
        regrets = regrets_of(pair.assign(label=pair["method"]), method, TOLERANCES)
        if regrets is not None:
            tables.append(regrets.table.query("rival == 'uniform'").assign(method=method, loss=loss))
    if not tables:
        raise ValueError("no method has runs beside those of `uniform` with the same losses")
    found = pd.concat(tables).rename(columns={"measure": "tasks"})  # a regret: how much worse the method is
    found = found.assign(difference=0 - found["regret"], lower=0 - found["upper"], upper=0 - found["lower"])
    found = found[[*KEYS, "unit", "difference", "lower", "upper", "verdict"]]
    long = runs.rename(columns={"clean_score": "clean", "overall_score": "overall"})
    long = long.melt([*KEYS[:-1], "seed", "learning_rate", "code"], ["clean", "overall"], "tasks", "score").groupby(
        KEYS
    )
    how = {"score": lambda own: own.mean(skipna=False), "learning_rate": "first", "code": "first", "seed": "count"}
    means = long.agg(how)
    return means.rename(columns={"seed": "seeds"}).reset_index().merge(found, "left", KEYS, validate="one_to_one")


def runs_of(scores: pd.DataFrame) -> pd.DataFrame:
    """A row per run and group of tasks; of the runs themselves, which are too many, only the scores are kept."""
    return scores.loc[scores.index.repeat(scores["seeds"])]


def published() -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of docs/data/choosing.csv: benchmark, method, noise, losses, tasks -> the row."""
    return {tuple(row[key] for key in KEYS): row for row in pd.read_csv(SCORES).to_dict("records")}


def standing(row: dict[str, Any]) -> str:
    """How much better than `uniform`: = for equivalent, ? for undecided, a dash where nothing is compared."""
    if isnan(row.get("score", 0)):
        return "diverged"
    decided = f"{row['difference']:+.{int(row['unit'] == 'points')}f}".replace("-", "−") if row else ""
    return {BETTER: decided, WORSE: decided, EQUIVALENT: "=", UNDECIDED: "?"}.get(row.get("verdict", ""), "–")


def score(row: dict[str, Any]) -> str:
    """In percent: bold where it is better than that of `uniform`, in italics where it is worse."""
    text = "–" if not row else "diverged" if isnan(row["score"]) else f"{100 * row['score']:#.3g}"
    return {BETTER: f"**{text}**", WORSE: f"*{text}*"}.get(row.get("verdict", ""), text)


def methods_table() -> Table:
    """Every method: where it comes from, what it needs and costs, how it stands against `uniform`."""
    costs, scores, records = read("methods_cpu")["ratio"], published(), []
    for row in rows():
        method = row["method"]
        record = row | {"method": f"[`{method}`]({CATALOGUE[method].link})", "cost": costs.get(method)}
        record["scale-free"] = row["scale-free"].replace("no", "")
        for column, how in RESULTS.items():
            own = [scores.get((benchmark, method, *how), {}) for benchmark in BENCHMARKS]
            record[column] = "/".join(map(standing, own)) if any(own) else "not measured"
        records.append(record)
    words = dict.fromkeys((*RESULTS, "scale-free", "good for"), "")
    return Table.of_records(records, {"method": "", "needs": "", "cost": "x{:.2f}".format, **words})


def scores_table() -> Table:
    """With bad labels, clean tasks/all tasks: `uniform`, `excess`, and what is better than `uniform` on both."""
    scores, lines = published(), []
    for method in CATALOGUE:
        keys = [(benchmark, method, 0.8, loss) for benchmark, loss in (column.lower().split(", ") for column in SHOWN)]
        cells = ["/".join(score(scores.get((*key, tasks), {})) for tasks in ("clean", "overall")) for key in keys]
        if method in ("uniform", "excess") or any(cell.count("**") == 4 for cell in cells):
            lines.append([f"`{method}`", *cells])
    return Table.of_texts("", ["method", *SHOWN], lines)


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
    {
        "methods": methods_table,
        "scores": lambda: with_code(scores_table(), runs_of(pd.read_csv(SCORES).query("tasks == 'clean'"))),
        "groups": groups_table,
        "names": names_table,
    },
)


def main(folders: Annotated[list[Path] | None, typer.Argument()] = None) -> None:
    """Write the tables of docs/choosing.md; first docs/data/choosing.csv, where folders of runs are given."""
    if folders:
        scores = scores_of(pd.concat([collect(folder) for folder in folders], ignore_index=True))
        write_whole(SCORES, csv_text(scores, "%.4g").encode())
    PAGE.write()


if __name__ == "__main__":
    typer.run(plain_errors(main))
