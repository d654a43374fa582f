"""How much worse a candidate is than the better of uniform weighting and IMTL, in units of what is tolerated.

The tolerances are those of `excessmtl.studies.regret`. A value of 1 is just tolerated, a negative one a gain.
"""

from collections.abc import Sequence

import pandas as pd

from excessmtl.studies.regret import MEASURES
from excessmtl.studies.text_table import TextTable
from excessmtl.studies.weighting.records import RIVAL_NAMES

_CELL = ["candidate", "world", "noise"]


def in_tolerances(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds for every candidate, world and noise level (the index), a column per measure."""
    regrets = {}
    for measure in MEASURES:
        columns = [f"{measure.name}_against_{rival}" for rival in RIVAL_NAMES]
        worst = frame.groupby(_CELL, sort=False)[columns].mean().max(axis=1)
        units = frame.groupby(_CELL, sort=False)["unit"].first()
        regrets[measure.name] = worst / units.map({"points": measure.points, "percent": measure.percent})
    return pd.DataFrame(regrets)


def beyond(regrets: pd.DataFrame) -> pd.Series:
    """Candidate -> what its regrets are beyond the tolerance, summed over worlds, noise levels and measures."""
    return (regrets - 1).clip(lower=0).sum(axis=1).groupby(level="candidate", sort=False).sum()


def by_noise(frame: pd.DataFrame, candidates: Sequence[str] | None = None) -> TextTable:
    """A row per candidate: its largest regret over the worlds at each noise level; None: all, the best first."""
    regrets = in_tolerances(frame)
    sums = beyond(regrets)
    largest = regrets.groupby(level=["candidate", "noise"], sort=False).max()
    levels = sorted(frame["noise"].unique())
    smallest = frame[frame["noise"] == levels[0]].groupby("candidate")["smallest_weight"].min()
    rows = []
    for name in sums.sort_values(kind="stable").index if candidates is None else candidates:
        cells = [f"{largest[measure.name][name, level]:.1f}" for measure in MEASURES for level in levels]
        rows.append([name, *cells, f"{sums[name]:.1f}", f"{smallest[name]:.3f}"])
    title = (
        "Largest regret over the worlds against the better of uniform and IMTL, in tolerances, by noise; "
        f"what is beyond 1, summed; the smallest weight of a task at noise {levels[0]:g}"
    )
    return TextTable(title, ["method", *_heads(levels), "beyond", "smallest"], rows)


def by_world(frame: pd.DataFrame, candidates: Sequence[str]) -> TextTable:
    """A row per candidate and world."""
    regrets = in_tolerances(frame)
    levels = sorted(frame["noise"].unique())
    rows = [
        [
            name,
            world,
            *(f"{regrets[measure.name][name, world, level]:.1f}" for measure in MEASURES for level in levels),
        ]
        for name in candidates
        for world in dict.fromkeys(frame["world"])
    ]
    return TextTable("Regret in tolerances, world by world", ["method", "benchmark", *_heads(levels)], rows)


def scores(frame: pd.DataFrame, candidates: Sequence[str] | None = None) -> TextTable:
    """A row per candidate: its mean scores at each noise level, of a table with one world."""
    means = frame.groupby(["candidate", "noise"], sort=False)[[measure.name for measure in MEASURES]].mean()
    levels = sorted(frame["noise"].unique())
    rows = [
        [name, *(f"{means[measure.name][name, level]:.4f}" for measure in MEASURES for level in levels)]
        for name in candidates or dict.fromkeys(frame["candidate"])
    ]
    return TextTable("Scores", ["method", *_heads(levels)], rows)


def weights(frame: pd.DataFrame, candidates: Sequence[str]) -> TextTable:
    """A row per candidate and world: the clean tasks' mean share at each noise level, the smallest weight of a task."""
    cells = frame.groupby(_CELL, sort=False).agg({"clean_weight": "mean", "smallest_weight": "min"})
    levels = sorted(frame["noise"].unique())
    rows = [
        [name, world, *(f"{cells[column][name, world, level]:.3f}" for column in cells for level in levels)]
        for name in candidates
        for world in dict.fromkeys(frame["world"])
    ]
    heads = [f"{what} {level:g}" for what in ("clean share", "smallest") for level in levels]
    return TextTable("Weights", ["method", "benchmark", *heads], rows)


def _heads(levels: Sequence[float]) -> list[str]:
    return [f"{measure.name} {level:g}" for measure in MEASURES for level in levels]
