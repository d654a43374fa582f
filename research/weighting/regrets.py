"""How much worse a candidate is than the better of uniform weighting and IMTL, in units of what is tolerated.

The tolerances are those of `excessmtl.analysis.regret`. A value of 1 is just tolerated, a negative one a gain.
"""

from collections.abc import Sequence

import pandas as pd

from excessmtl.analysis.regret import GROUPS
from excessmtl.analysis.table import Table
from research.weighting.records import RIVAL_NAMES

_CELL = ["candidate", "world", "noise"]


def in_tolerances(frame: pd.DataFrame, statistic: str = "mean") -> pd.DataFrame:
    """For every candidate, world and noise level (the index) a column per measure: the regret's mean over seeds.

    It is against the rival that is better there; with `statistic="sem"` its standard error instead.
    """
    cells = frame.groupby(_CELL, sort=False)
    units = cells["unit"].first()
    regrets = {}
    for group in GROUPS:
        columns = [f"{group.name}_against_{rival}" for rival in RIVAL_NAMES]
        worst = cells[columns].mean().idxmax(axis=1)
        values = cells[columns].agg(statistic)
        chosen = pd.Series([values[column][cell] for cell, column in worst.items()], index=worst.index)
        regrets[group.name] = chosen / units.map({"points": group.points, "percent": group.percent})
    return pd.DataFrame(regrets)


def beyond(regrets: pd.DataFrame) -> pd.Series:
    """Candidate -> what its regrets are beyond the tolerance, summed over worlds, noise levels and measures."""
    return (regrets - 1).clip(lower=0).sum(axis=1).groupby(level="candidate", sort=False).sum()


def by_noise(frame: pd.DataFrame, candidates: Sequence[str] | None = None) -> Table:
    """A row per candidate: its largest regret over the worlds at each noise level; None: all, the best first."""
    regrets = in_tolerances(frame)
    sums = beyond(regrets)
    largest = regrets.groupby(level=["candidate", "noise"], sort=False).max()
    levels = _levels(frame)
    rows = []
    for name in sums.sort_values(kind="stable").index if candidates is None else candidates:
        cells = [f"{largest[group.name][name, level]:.1f}" for group in GROUPS for level in levels]
        rows.append([name, *cells, f"{sums[name]:.1f}"])
    title = (
        "Largest regret over the worlds, by noise, against the better of uniform and IMTL, in tolerances; "
        "what is beyond 1, summed over worlds and levels"
    )
    return Table.of_texts(title, ["method", *_heads(levels), "beyond"], rows)


def by_world(frame: pd.DataFrame, candidates: Sequence[str]) -> Table:
    """A row per candidate and world: mean regret and, of several seeds, its standard error."""
    means, errors = in_tolerances(frame), in_tolerances(frame, "sem")
    levels = _levels(frame)

    def cell(measure: str, place: tuple[str, str, float]) -> str:
        error = errors[measure][place]
        return f"{means[measure][place]:.1f}" + ("" if pd.isna(error) else f" ± {error:.1f}")

    rows = [
        [name, world, *(cell(group.name, (name, world, level)) for group in GROUPS for level in levels)]
        for name in candidates
        for world in dict.fromkeys(frame["world"])
    ]
    return Table.of_texts("Regret in tolerances, world by world", ["method", "benchmark", *_heads(levels)], rows)


def scores(frame: pd.DataFrame, candidates: Sequence[str] | None = None) -> Table:
    """A row per candidate: its mean scores at each noise level, of a table with one world."""
    means = frame.groupby(["candidate", "noise"], sort=False)[[group.name for group in GROUPS]].mean()
    levels = _levels(frame)
    rows = [
        [name, *(f"{means[group.name][name, level]:.4f}" for group in GROUPS for level in levels)]
        for name in candidates or dict.fromkeys(frame["candidate"])
    ]
    return Table.of_texts("Scores", ["method", *_heads(levels)], rows)


def weights(frame: pd.DataFrame, candidates: Sequence[str]) -> Table:
    """A row per candidate and world: the clean tasks' share of the weight at each noise level.

    And at the lowest level the smallest weight of a task, its mean over the seeds and its least.
    """
    groups = frame.groupby(_CELL, sort=False)
    shares, smallest = groups["clean_weight"].mean(), groups["smallest_weight"].agg(["mean", "min"])
    levels = _levels(frame)
    rows = [
        [
            name,
            world,
            *(f"{shares[name, world, level]:.2f}" for level in levels),
            *(f"{smallest[which][name, world, levels[0]]:.3f}" for which in smallest),
        ]
        for name in candidates
        for world in dict.fromkeys(frame["world"])
    ]
    heads = [*(f"clean share {level:g}" for level in levels), f"smallest {levels[0]:g}", "in the worst seed"]
    return Table.of_texts("Weights", ["method", "benchmark", *heads], rows)


def _levels(frame: pd.DataFrame) -> list[float]:
    return sorted(frame["noise"].unique())


def _heads(levels: Sequence[float]) -> list[str]:
    return [f"{group.name} {level:g}" for group in GROUPS for level in levels]
