"""Which runs are one row of a table: those that differ in nothing but their seed."""

import pandas as pd

from excessmtl.lab.runs.record import NOT_RECORDED, differing, kind_of, refuse_equal_seeds


def told_apart(runs: pd.DataFrame, column: str = "label") -> pd.DataFrame:
    """The runs of one setting, each label completed by what differs between runs of that label at one noise level.

    Between noise levels anything may differ, as where a learning rate was chosen for each. Two runs with the same seed
    that differ in nothing are refused.

    Args:
        runs: of one setting, as `collect` gives them.
        column: where the labels are.
    """
    named = runs[column].copy()
    for label, own in runs.groupby(column, sort=False):
        how = {place: kind_of(run) for place, run in zip(own.index, own.to_dict("records"), strict=True)}
        keys = {key for _, level in own.groupby("noise") for key in differing(how[place] for place in level.index)}
        for place in own.index if keys else ():
            words = ", ".join(f"{key}={how[place].get(key, NOT_RECORDED)}" for key in sorted(keys))
            named[place] = f"{label} ({words})"
    named_apart = runs.assign(**{column: named})
    refuse_equal_seeds(named_apart.to_dict("records"), column)
    return named_apart
