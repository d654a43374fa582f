"""Regrets as tables: against whom a method does worst in each setting, and every comparison, worst first."""

import math
from pathlib import Path

import pandas as pd

from excessmtl.analysis.csv_text import csv_text
from excessmtl.analysis.regret import GROUPS
from excessmtl.analysis.statistics import CONFIDENCE
from excessmtl.analysis.table import Cell, Row, Table
from excessmtl.files import atomic_write

BEYOND = "✗"
"""Marks a regret that the seeds prove to be beyond the tolerance."""
_TASKS = {"clean": "tasks without added noise", "overall": "all tasks"}


def write_regrets(regrets: pd.DataFrame, path: Path) -> None:
    """The whole table as CSV."""
    with atomic_write(path) as file:
        file.write(csv_text(regrets).encode())


def verdict(regrets: pd.DataFrame, method: str) -> str:
    """One sentence for all rows."""
    beyond = regrets[~regrets["within"].astype(bool)]
    how = (
        "one seed each, so a difference itself decides"
        if (regrets["seeds"] == 1).all()
        else f"judged by the lower end of the {CONFIDENCE:.0%} interval over the seeds"
    )
    if beyond.empty:
        return f"{method} is within the tolerance in all {len(regrets)} comparisons ({how})."
    return f"{method} is beyond the tolerance in {len(beyond)} of {len(regrets)} comparisons ({how})."


def worst_regrets(regrets: pd.DataFrame, method: str) -> list[Table]:
    """Setting by noise for each group of tasks: the regret whose lower end is the highest, that end, and the rival."""
    groups = [regrets[regrets["measure"] == group.name] for group in GROUPS]
    return [_matrix(own, method) for own in groups if len(own)]


def every_regret(regrets: pd.DataFrame) -> Table:
    """A row per comparison, the worst first."""
    # In tolerances, so that points and percent can be ordered together.
    order = (regrets["lower"] / regrets["tolerance"]).sort_values(ascending=False, kind="stable").index
    heads = [
        "rival",
        "benchmark",
        "noise",
        "tasks",
        "regret",
        "lower end",
        "upper end",
        "tolerance",
        "verdict",
        "seeds",
    ]
    return Table("Regret", heads, [_row(row) for _, row in regrets.loc[order].iterrows()])


def _matrix(regrets: pd.DataFrame, method: str) -> Table:
    levels = sorted(regrets["noise"].unique())
    rows = []
    for name, group in regrets.groupby("setting", sort=True):
        first = group.iloc[0]
        head = f"{name}, {first['unit']} (up to {first['tolerance']:g})"
        rows.append([head, *(_worst(group[group["noise"] == level]) for level in levels)])
    tasks = _TASKS[regrets["measure"].iloc[0]]
    title = f"Worst regret of {method}, {tasks}: mean, lower end in brackets, rival; {BEYOND} beyond the tolerance"
    return Table.of_texts(title, ["benchmark", *(f"noise {level:g}" for level in levels)], rows)


def _worst(regrets: pd.DataFrame) -> str:
    if regrets.empty:
        return ""
    worst = regrets.loc[regrets["lower"].idxmax()]
    text = f"{worst['regret']:+.2f} [{worst['lower']:+.2f}] {worst['rival']}"
    return text if worst["within"] else f"{BEYOND} {text}"


def _row(row: pd.Series) -> Row:
    unit, within = " %" if row["unit"] == "percent" else "", bool(row["within"])
    cells = [
        Cell(row["rival"], method=row["rival"]),
        Cell(row["setting"]),
        Cell(f"{row['noise']:g}", str(row["noise"])),
        Cell(_TASKS[row["measure"]]),
        *(_number(row[column], unit) for column in ("regret", "lower", "upper")),
        Cell(f"{row['tolerance']:g}{unit}", f"{row['tolerance']:g}"),
        Cell("within" if within else "beyond", str(within), badge="good" if within else "bad"),
        Cell(str(row["seeds"])),
    ]
    return Row(cells, flagged=not within)


def _number(value: float, unit: str) -> Cell:
    if math.isinf(value):
        return Cell("diverged", "Infinity") if value > 0 else Cell("rival diverged", "-Infinity")
    return Cell(f"{value:+z.2f}{unit}".replace("-", "−"), f"{value:.8g}")
