"""What only writes the documents of this repository; run from its root, not part of the package."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from excessmtl.lab.compare.table import Table

DOCS = Path(__file__).parents[1] / "docs"


def with_code(table: Table, runs: pd.DataFrame) -> str:
    """The table, and the fingerprints of the code that its runs were made by."""
    counts = ", ".join(f"{code} ({count:,})" for code, count in runs["code"].value_counts().items())
    return f"{table.as_markdown().strip()}\n\nCode of the runs: {counts}."


def newest(tables: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """All runs in one table; of those that are equal in these columns, the last table's alone."""
    runs = pd.concat([own.assign(part=part) for part, own in enumerate(tables)], ignore_index=True)
    last = runs["part"].groupby([runs[name].astype(str) for name in names]).transform("max")
    return runs[runs["part"] == last].drop(columns="part").reset_index(drop=True)
