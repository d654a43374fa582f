"""The tables of docs/theory.md, from docs/data/theory, which `excessmtl reproduce all --scale quick` wrote."""

from pathlib import Path

import pandas as pd

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Format, Table

DOCS = Path(__file__).parents[1] / "docs"
_VARIANTS = ("the proof: one task a step", "all tasks a step", "all tasks, paper's estimate")


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(DOCS / "data" / "theory" / f"{name}.csv")


def _table(frame: pd.DataFrame, columns: dict[str, tuple[str, Format]]) -> Table:
    """Column of the file -> its heading and format."""
    named = frame.rename(columns={column: heading for column, (heading, _) in columns.items()})
    return Table.of_records(named.to_dict("records"), dict(columns.values()))


def dominated() -> Table:
    """Methods on two tasks without conflict."""
    columns = {
        "excess_1": "excess risk 1 (clean) ↓",
        "excess_2": "excess risk 2 (noisy) ↓",
        "weight_1": "weight of task 1",
    }
    formats: dict[str, tuple[str, Format]] = {name: (heading, ".3g") for name, heading in columns.items()}
    frame = _read("theory_dominated").assign(dominated=lambda own: own["dominated"].map({True: "yes", False: "no"}))
    return _table(frame, {"method": ("method", ""), **formats, "dominated": ("dominated", "")})


def rates() -> Table:
    """Ranges over the three problems, where the horizons are long enough."""
    rows = []
    frame = _read("theory_rates")
    for (sampled, tasks), own in frame[frame["long_enough"]].groupby(["sampled", "tasks"]):
        loose = f"{own['smallest_looseness'].min():.0f} to {own['largest_looseness'].max():.0f}"
        first = own["first_horizon_with_bound_below_B_l"]
        rate = f"{own['rate'].min():.2f} to {own['rate'].max():.2f}"
        rows.append([str(sampled), f"{tasks}", rate, loose, f"{first.min():,} to {first.max():,}"])
    heads = ["tasks a step", "m", "fitted rate", "bound / gap", "bound says something from T ="]
    return Table.of_texts("", heads, rows)


def assumptions() -> Table:
    """Largest excess risk above the min-max value, for the averaged and for the last iterate."""
    frame = _read("theory_assumptions")
    own = frame[(frame["tasks"] == 2) & (frame["horizon"] == 8192)]
    rows = []
    for variant in _VARIANTS:
        found = own[own["variant"] == variant]
        numbers = [value for row in found.itertuples() for value in (row.worst_task, row.last_iterate)]
        rows.append([variant, *(f"{value:.3g}" for value in numbers)])
    problems = own["problem"].unique()
    heads = ["variant (m = 2)", *(f"{problem}: {which} ↓" for problem in problems for which in ("mean", "last"))]
    return Table.of_texts("", heads, rows)


def figure_1() -> Table:
    """Where the methods end."""
    columns: dict[str, tuple[str, Format]] = {
        "solution": ("solution", ""),
        "loss_1": ("loss 1 (noisy) ↓", ".3f"),
        "loss_2": ("loss 2 (clean) ↓", ".3f"),
        "weight_of_noisy_task": ("weight of task 1", ".2f"),
    }
    return _table(_read("conceptual"), columns)


PAGE = Page(
    DOCS / "theory.md",
    {"dominated": dominated, "rates": rates, "assumptions": assumptions, "figure-1": figure_1},
)
