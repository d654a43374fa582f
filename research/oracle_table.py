"""What a method reaches, beside networks that know more: which tasks are noisy, or the clean labels."""

import math

import pandas as pd

from excessmtl.lab.compare.robustness import LAST, scores_by_run
from excessmtl.lab.compare.table import Table

_TITLES = {"clean": "clean tasks", "noisy": "noisy tasks"}
_LEFT_OUT = "noisy tasks left out"
"""The label of runs that do not train the noisy tasks: only their clean tasks have a score."""


def oracle_table(frame: pd.DataFrame, oracles: pd.DataFrame, method: str) -> str:
    """As Markdown: a row per setting, level and group of tasks; mean scores over the seeds, after the last epoch."""
    both = scores_by_run(pd.concat([frame, oracles], ignore_index=True))
    groups = both[both["epoch"] == LAST].groupby(["setting", "noise", "label"])[list(_TITLES)]
    means = groups.agg(lambda values: values.mean(skipna=False))  # a run that has diverged is not left out
    means.loc[means.index.get_level_values("label") == _LEFT_OUT, "noisy"] = math.nan
    labels = sorted(set(oracles["label"]))
    places = dict.fromkeys((setting, noise) for setting, noise, label in means.index if label in labels)
    rows = []
    for setting, noise in places:
        for measure, title in _TITLES.items():
            keys = [*((setting, noise, label) for label in ("uniform", method, *labels)), (setting, 0.0, method)]
            values = [float(means[measure].get(key, math.nan)) for key in keys]
            rows.append([setting, f"{noise:g}", title, *("" if math.isnan(one) else f"{one:.4g}" for one in values)])
    columns = ["benchmark", "noise", "tasks", "uniform", method, *labels, f"{method}, clean labels"]
    return Table.of_texts("", columns, rows).as_markdown().strip()
