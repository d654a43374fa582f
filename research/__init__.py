"""What only writes the documents of this repository; run from its root, not part of the package."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from excessmtl.lab.compare.collect import write_table
from excessmtl.lab.compare.table import Table

DOCS = Path(__file__).parents[1] / "docs"
NOT_SHOWN = ("mean_scores", "chosen_scores")
"""Columns of tables of runs that no page needs. They are published empty, or would be nearly half of the file."""


def with_code(table: Table, runs: pd.DataFrame) -> str:
    """The table, and the fingerprints of the code that its runs were made by."""
    counts = ", ".join(f"{code} ({count:,})" for code, count in runs["code"].value_counts().items())
    return f"{table.as_markdown().strip()}\n\nCode of the runs: {counts}."


def newest(tables: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """All runs in one table; of those that are equal in these columns, the last table's alone."""
    runs = pd.concat([own.assign(part=part) for part, own in enumerate(tables)], ignore_index=True)
    last = runs["part"].groupby([runs[name].astype(str) for name in names]).transform("max")
    return runs[runs["part"] == last].drop(columns="part").reset_index(drop=True)


def publish_runs(runs: pd.DataFrame, path: Path, *left_out: str) -> None:
    """Write the table of these runs; what no page needs, or no page on these runs, is empty."""
    write_table(runs.assign(**{name: [{}] * len(runs) for name in (*NOT_SHOWN, *left_out)}), path)


def chosen(runs: pd.DataFrame, column: str, names: Sequence[str], places: Sequence[str], error: str) -> pd.DataFrame:
    """Of the runs with these names in a column, at every place those of the name with the lowest mean error."""
    own = runs[runs[column].isin(names)]
    where = [own[place].astype(str) for place in places]
    means = own[error].fillna(float("inf")).groupby([*where, own[column]]).transform("mean")
    best = own[means == means.groupby(where).transform("min")]
    return best[~best.astype(str).duplicated([*places, "seed"])]
