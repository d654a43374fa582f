"""Regrets as tables: against whom a method does worst in each setting, and every comparison, worst first."""

import math
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from excessmtl.files import write_whole
from excessmtl.lab.compare.comparison import BETTER, CONFIDENCE, EQUIVALENT, SEEDS, UNDECIDED, WORSE, WORST_FIRST
from excessmtl.lab.compare.csv_text import csv_text
from excessmtl.lab.compare.regret import GROUPS
from excessmtl.lab.compare.table import Cell, Row, Table

MARKS = {WORSE: "✗", BETTER: "✓", EQUIVALENT: "=", UNDECIDED: "?"}
"""Of the verdicts, in a small table."""
_BADGES = {WORSE: "bad", BETTER: "good", EQUIVALENT: "good", UNDECIDED: ""}
_TASKS = {"clean": "tasks without added noise", "overall": "all tasks"}


def write_regrets(regrets: pd.DataFrame, path: Path) -> None:
    """The whole table as CSV."""
    write_whole(path, csv_text(regrets).encode())


def verdict(regrets: pd.DataFrame, method: str) -> str:
    """One sentence for all rows."""
    how = f"by the {CONFIDENCE:.0%} interval of the paired differences"
    if (regrets["seeds"] < SEEDS).all():
        how = f"fewer than {SEEDS} seeds decide nothing"
    return f"Of {len(regrets)} comparisons {method} is {counted(regrets['verdict'])} ({how})."


def counted(verdicts: Iterable[str]) -> str:
    """How many there are of each: "better in 3, equivalent in 1, undecided in 5, worse in 2"."""
    found = list(verdicts)
    return ", ".join(f"{word} in {found.count(word)}" for word in reversed(WORST_FIRST))


def worst_regrets(regrets: pd.DataFrame, method: str) -> list[Table]:
    """Setting by noise for each group of tasks: the worst verdict with the largest mean regret, and the rival."""
    groups = [regrets[regrets["measure"] == group.name] for group in GROUPS]
    return [_matrix(own, method) for own in groups if len(own)]


def every_regret(regrets: pd.DataFrame) -> Table:
    """A row per comparison, the worst first."""
    ends = ("regret", "lower end", "upper end")
    heads = ["rival", "benchmark", "noise", "tasks", *ends, "tolerance", "verdict", "seeds"]
    return Table("Regret", heads, [_row(row) for _, row in _worst_first(regrets).iterrows()])


def _matrix(regrets: pd.DataFrame, method: str) -> Table:
    levels = sorted(regrets["noise"].unique())
    rows = []
    for name, group in regrets.groupby("setting", sort=True):
        first = group.iloc[0]
        head = f"{name}, {first['unit']} (up to {first['tolerance']:g})"
        rows.append([head, *(_worst(group[group["noise"] == level]) for level in levels)])
    tasks = _TASKS[regrets["measure"].iloc[0]]
    marks = ", ".join(f"{mark} {word}" for word, mark in MARKS.items())
    title = f"Worst regret of {method}, {tasks}: verdict, mean and rival; {marks}"
    return Table.of_texts(title, ["benchmark", *(f"noise {level:g}" for level in levels)], rows)


def _worst(regrets: pd.DataFrame) -> str:
    if regrets.empty:
        return ""
    worst = _worst_first(regrets).iloc[0]
    return f"{MARKS[worst['verdict']]} {_number(worst['regret'], '').text} {worst['rival']}"


def _worst_first(regrets: pd.DataFrame) -> pd.DataFrame:
    """By verdict, then by the regret in tolerances, so that points and percent can be ordered together."""
    verdicts = [WORST_FIRST.index(word) for word in regrets["verdict"]]
    sizes = regrets["regret"] / regrets["tolerance"]
    keys = pd.DataFrame({"verdict": verdicts, "size": sizes}, index=regrets.index)
    return regrets.loc[keys.sort_values(["verdict", "size"], ascending=[True, False], kind="stable").index]


def _row(row: pd.Series) -> Row:
    unit, word = " %" if row["unit"] == "percent" else "", row["verdict"]
    cells = [
        Cell(row["rival"], method=row["rival"]),
        Cell(row["setting"]),
        Cell(f"{row['noise']:g}", str(row["noise"])),
        Cell(_TASKS[row["measure"]]),
        *(_number(row[column], unit) for column in ("regret", "lower", "upper")),
        Cell(f"{row['tolerance']:g}{unit}", f"{row['tolerance']:g}"),
        Cell(word, str(WORST_FIRST.index(word)), badge=_BADGES[word]),
        Cell(str(row["seeds"])),
    ]
    return Row(cells, flagged=word == WORSE)


def _number(value: float, unit: str) -> Cell:
    if math.isnan(value):
        return Cell("–", "")
    if math.isinf(value):
        return Cell("diverged", "Infinity") if value > 0 else Cell("rival diverged", "-Infinity")
    return Cell(f"{value:+z.2f}{unit}".replace("-", "−"), f"{value:.8g}")
