"""Mean and spread over seeds, as rows of a figure's table."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from excessmtl.analysis.statistics import Spread


def over_seeds(values: pd.Series, name: str) -> dict[str, float]:
    """`name` (the mean), `name_sd`, and the bounds of the 90 % interval of the mean; NaN where one seed is all."""
    spread = Spread.of(pd.to_numeric(values).astype(float))
    bounds = {f"{name}_low": spread.mean - spread.half_width, f"{name}_high": spread.mean + spread.half_width}
    return {name: spread.mean, f"{name}_sd": spread.deviation, **bounds}


def summary_rows(runs: pd.DataFrame, columns: Mapping[str, pd.Series]) -> list[dict[str, Any]]:
    """One row per method and noise level: each column over the seeds, and how many runs there were.

    Args:
        runs: with the columns `shown`, `noise` and `seed`.
        columns: what to summarise, aligned with `runs`; a run that diverged has no number there.
    """
    rows = []
    for (shown, noise), group in runs.groupby(["shown", "noise"], sort=True):
        row: dict[str, Any] = {"method": shown, "noise": noise, "seeds": group.seed.nunique()}
        for name, values in columns.items():
            row |= over_seeds(values.loc[group.index], name)
        rows.append(row)
    return rows
