"""Mean and spread over seeds, as rows of a table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

_CONFIDENCE = 0.90


def over_seeds(values: pd.Series, name: str) -> dict[str, float]:
    """`name` (the mean), `name_sd`, and the bounds of the 90 % interval of the mean; nan where one seed is all."""
    numbers = pd.to_numeric(values).dropna()
    count = len(numbers)
    mean, deviation = numbers.mean(), numbers.std(ddof=1) if count > 1 else np.nan
    half = student.ppf((1 + _CONFIDENCE) / 2, max(count - 1, 1)) * deviation / np.sqrt(max(count, 1))
    return {name: mean, f"{name}_sd": deviation, f"{name}_low": mean - half, f"{name}_high": mean + half}


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
