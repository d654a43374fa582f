"""The regret table in brief: for every benchmark and noise level, against whom a method does worst."""

from pathlib import Path

import pandas as pd

from excessmtl.analysis.regret import CONFIDENCE, MEASURES
from excessmtl.analysis.table import TextTable
from excessmtl.files import atomic_write

BEYOND = "✗"
"""Marks a regret that the seeds prove to be beyond the tolerance."""


def write_regrets(regrets: pd.DataFrame, path: Path) -> None:
    """The whole table as CSV."""
    with atomic_write(path) as file:
        file.write(regrets.to_csv(index=False, float_format="%.6g").encode())


def worst_regrets(regrets: pd.DataFrame, method: str) -> list[TextTable]:
    """Benchmark by noise for each measure: the regret whose lower end is the highest, that end, and the rival."""
    return [
        _matrix(regrets[regrets["measure"] == measure.name], measure.name, method)
        for measure in MEASURES
        if (regrets["measure"] == measure.name).any()
    ]


def verdict(regrets: pd.DataFrame, method: str) -> str:
    """One sentence for all rows."""
    beyond = regrets[~regrets["within"]]
    how = (
        "one seed each, so a difference itself decides"
        if (regrets["seeds"] == 1).all()
        else f"judged by the lower end of the {CONFIDENCE:.0%} interval over the seeds"
    )
    if beyond.empty:
        return f"{method} is within the tolerance in all {len(regrets)} comparisons ({how})."
    return f"{method} is beyond the tolerance in {len(beyond)} of {len(regrets)} comparisons ({how})."


def _matrix(regrets: pd.DataFrame, measure: str, method: str) -> TextTable:
    levels = sorted(regrets["noise"].unique())
    rows = []
    for benchmark, group in regrets.groupby("benchmark", sort=True):
        first = group.iloc[0]
        head = f"{benchmark}, {first['unit']} (up to {first['tolerance']:g})"
        rows.append([head, *(_cell(group[group["noise"] == level]) for level in levels)])
    what = "clean tasks" if measure == "clean" else "all tasks"
    title = f"Worst regret of {method}, {what}: mean, lower end in brackets, rival; {BEYOND} beyond the tolerance"
    return TextTable(title, ["benchmark", *(f"noise {level:g}" for level in levels)], rows)


def _cell(regrets: pd.DataFrame) -> str:
    if regrets.empty:
        return ""
    worst = regrets.loc[regrets["lower"].idxmax()]
    text = f"{worst['regret']:+.2f} [{worst['lower']:+.2f}] {worst['rival']}"
    return text if worst["within"] else f"{BEYOND} {text}"
