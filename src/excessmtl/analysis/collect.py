"""All finished runs under a folder as one table, wherever in it they lie."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from excessmtl.files import atomic_write
from excessmtl.training.config import RunConfig

PLAIN = (
    "benchmark",
    "source",
    "label",
    "method",
    "noise",
    "seed",
    "epochs",
    "clean_score",
    "noisy_score",
    "overall_score",
    "clean_weight",
    "seconds_per_step",
)
"""Columns with one plain value per run."""
NESTED = ("options", "noisy_tasks", "primary_metric", "higher_is_better", "scores", "mean_scores", "metrics", "weights")
"""Columns with a list or a dict by task per run: JSON in a CSV file."""


def collect(folder: Path) -> pd.DataFrame:
    """One row per finished run, sorted: the columns `PLAIN` and `NESTED`, and `folder` (relative to `folder`).

    A folder without run folders but with a `runs.csv` that `write_table` wrote gives what that file says.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; pass one that holds runs")
    paths = sorted(folder.rglob("summary.json"))
    if not paths:
        tables = sorted(folder.rglob("runs.csv"))
        if not tables:
            raise ValueError(f"{folder} holds no finished run; pass the folder of a sweep, or of one run")
        return pd.concat([read_table(table) for table in tables], ignore_index=True)
    rows = [_row(json.loads(path.read_text()), path.parent.relative_to(folder)) for path in paths]
    frame = pd.DataFrame(rows, columns=["folder", *PLAIN, *NESTED])
    return frame.sort_values(["benchmark", "label", "noise", "seed"], ignore_index=True)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """`collect`ed runs as a CSV file."""
    plain = frame.copy()
    for column in NESTED:
        plain[column] = [json.dumps(_shortened(value)) for value in frame[column]]
    with atomic_write(path) as file:
        file.write(plain.to_csv(index=False, float_format="%.7g").encode())


def read_table(path: Path) -> pd.DataFrame:
    """The inverse of `write_table`."""
    # As text up to here: pandas would take the null of a run without weights for a missing number.
    return pd.read_csv(path, converters=dict.fromkeys(NESTED, json.loads))


def _shortened(value: Any) -> Any:
    """With the digits that the other columns have: a table of many tasks is mostly digits nobody reads."""
    if isinstance(value, dict):
        return {key: _shortened(own) for key, own in value.items()}
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _row(summary: dict[str, Any], folder: Path) -> dict[str, Any]:
    row = {"folder": str(folder), **{name: summary.get(name) for name in (*PLAIN, *NESTED)}}
    # Runs of 0.1.0 carry no label.
    return row if row["label"] else {**row, "label": RunConfig.from_dict(summary).name}
