"""Mean and spread over seeds, as the table of a figure."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from excessmtl.lab.compare.comparison import Spread
from excessmtl.lab.paper.subjects import Subject


def over_seeds(subject: Subject, columns: Mapping[str, pd.Series], **known: Any) -> pd.DataFrame:
    """One row per method and noise level: each column over the seeds, and how many runs there were.

    Args:
        subject: what the runs were trained on.
        columns: what to summarise, by run; a run that diverged has no number there. Each gives its mean, `_sd`, and the
            bounds of the mean's 90 % interval, `_low` and `_high`, which are NaN where one seed is all.
        known: what every row says, besides the data and the epochs.
    """
    rows = []
    runs = subject.runs.loc[next(iter(columns.values())).index]
    for (shown, noise), group in runs.groupby(["shown", "noise"], sort=True):
        row = {"data": subject.title, "epochs": subject.epochs, **known}
        row |= {"method": shown, "noise": noise, "seeds": group.seed.nunique()}
        for name, values in columns.items():
            spread = Spread.of(pd.to_numeric(values.loc[group.index]).astype(float))
            names = (name, f"{name}_sd", f"{name}_low", f"{name}_high")
            row |= dict(zip(names, (spread.mean, spread.deviation, *spread.interval), strict=True))
        rows.append(row)
    return pd.DataFrame(rows)
