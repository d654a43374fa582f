"""Which runs are one row of a table: those that differ in nothing but their seed."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

NOT_RECORDED = "not recorded"
_PLAIN = ("method", "loss", "learning_rate", "weight_decay", "code")
_NESTED = ("settings", "method_options")
"""Columns of `collect` that say how a run was trained, besides what makes a setting."""


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
        how = {place: _how(run) for place, run in zip(own.index, own.to_dict("records"), strict=True)}
        keys = {key for _, level in own.groupby("noise") for key in _differing([how[place] for place in level.index])}
        for place in own.index if keys else ():
            words = ", ".join(f"{key}={how[place].get(key, NOT_RECORDED)}" for key in sorted(keys))
            named[place] = f"{label} ({words})"
    found = runs.assign(**{column: named})
    _refuse_copies(found, column)
    return found


def _how(run: Mapping[str, Any]) -> dict[str, str]:
    """How a run was trained, as texts by name; what it has not recorded is missing."""
    plain = {name: run.get(name) for name in _PLAIN}
    values = {name: value for name, value in plain.items() if value is not None and value == value}
    for column in _NESTED:
        nested = run.get(column)
        values |= dict(nested) if isinstance(nested, Mapping) else {}
    # Of runs that have not recorded all options, those that were given.
    values |= {} if run.get("method_options") else {f"option {key}": own for key, own in run["options"].items()}
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}


def _differing(how: Iterable[Mapping[str, str]]) -> set[str]:
    """What is not the same in all runs. Runs that recorded less than others differ from these in `code`."""
    found = [{"code": NOT_RECORDED, **own} for own in how]
    complete = {own["code"] for own in found} != {NOT_RECORDED}
    known = [own for own in found if not complete or own["code"] != NOT_RECORDED]
    keys = {key for own in known for key in own}
    differing = {key for key in keys if len({own.get(key, NOT_RECORDED) for own in known}) > 1}
    shared = {key for key in _PLAIN if len({own.get(key) for own in found}) > 1}
    return differing | shared


def _refuse_copies(runs: pd.DataFrame, column: str) -> None:
    first: dict[tuple[Any, ...], str] = {}
    for run in runs.to_dict("records"):
        key = (run[column], run["noise"], run["seed"])
        if key in first:
            raise ValueError(
                f"{first[key]} and {run['folder']} are two runs of {run[column]} on {run['benchmark']} at noise "
                f"{run['noise']:g} with seed {run['seed']} and the same settings; delete one of them, or look at one "
                "study at a time"
            )
        first[key] = run["folder"]
