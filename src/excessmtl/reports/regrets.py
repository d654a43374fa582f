"""The regret table for the page: where ExcessMTL loses to a rival, worst first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from excessmtl.analysis.regret import can_compare, regret_table
from excessmtl.analysis.regret_summary import verdict
from excessmtl.analysis.settings import Setting
from excessmtl.paper.methods import ROBUST, with_shown_names

NAME = "ExcessMTL"


@dataclass(frozen=True)
class Number:
    """A number as it is shown and, in the spelling of JavaScript, as it is sorted."""

    text: str
    order: str


@dataclass(frozen=True)
class Regret:
    """One row of the table."""

    benchmark: str
    noise: float
    rival: str
    measure: str
    mean: Number
    lower: Number
    upper: Number
    tolerance: Number
    seeds: int
    within: bool


@dataclass(frozen=True)
class Regrets:
    """The rows, what they say together, and what could not be compared."""

    rows: list[Regret]
    sentence: str
    left_out: list[str]


def regrets_of(settings: Sequence[Setting]) -> Regrets | None:
    """Over all settings that have ExcessMTL and a rival; None where none has."""
    tables, left_out = [], []
    for setting in settings:
        label = _ours(setting.runs)
        if label is not None and can_compare(setting.runs, label):
            try:
                tables.append(regret_table(setting.runs, label))
            except ValueError as error:
                left_out.append(f"{setting.benchmark}: {error}")
    if not tables:
        return Regrets([], "", left_out) if left_out else None
    table = pd.concat(tables, ignore_index=True)
    # In tolerances, so that points and percent can be ordered together.
    worst_first = (table["lower"] / table["tolerance"]).sort_values(ascending=False, kind="stable").index
    rows = [_regret(row) for _, row in table.loc[worst_first].iterrows()]
    return Regrets(rows, verdict(table, NAME), left_out)


def _ours(runs: pd.DataFrame) -> str | None:
    """What these runs call ExcessMTL with its default estimator."""
    named = with_shown_names(runs)
    return next(iter(named["label"][named["shown"] == ROBUST]), None)


def _regret(row: pd.Series) -> Regret:
    unit = " %" if row["unit"] == "percent" else ""
    numbers = {name: _number(row[name], unit) for name in ("lower", "upper")}
    return Regret(
        benchmark=row["benchmark"],
        noise=row["noise"],
        rival=row["rival"],
        measure=row["measure"],
        mean=_number(row["regret"], unit),
        tolerance=Number(f"{row['tolerance']:g}{unit}", f"{row['tolerance']:g}"),
        seeds=row["seeds"],
        within=bool(row["within"]),
        **numbers,
    )


def _number(value: float, unit: str) -> Number:
    if math.isinf(value):
        return Number("diverged", "Infinity") if value > 0 else Number("rival diverged", "-Infinity")
    return Number(f"{value:+z.2f}{unit}".replace("-", "−"), f"{value:.8g}")
