"""How much worse a candidate is than the better of uniform weighting and IMTL, in units of what is tolerated.

The tolerances are those of `excessmtl.lab.compare.regret`. A value of 1 is just tolerated, a negative one a gain.
"""

from collections.abc import Sequence

import pandas as pd

from excessmtl.lab.compare.regret import GROUPS
from excessmtl.lab.compare.table import Table
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


def by_noise(frame: pd.DataFrame, candidates: Sequence[str] = ()) -> Table:
    """A row per candidate: its largest regret over the worlds at each noise level; none named: all, the best first."""
    regrets = in_tolerances(frame)
    sums = beyond(regrets).sort_values(kind="stable")
    largest = regrets.groupby(level=["candidate", "noise"]).max().map("{:.1f}".format)
    title = (
        "Largest regret over the worlds, by noise, against the better of uniform and IMTL, in tolerances; "
        "what is beyond 1, summed over worlds and levels"
    )
    return _by_level(title, largest, list(candidates or sums.index), beyond=sums.map("{:.1f}".format))


def by_world(frame: pd.DataFrame, candidates: Sequence[str]) -> Table:
    """A row per candidate and world: mean regret and, of several seeds, its standard error."""
    errors = in_tolerances(frame, "sem").map(lambda error: "" if pd.isna(error) else f" ± {error:.1f}")
    texts = in_tolerances(frame).map("{:.1f}".format) + errors
    return _by_level("Regret in tolerances, world by world", texts, _with_worlds(frame, candidates))


def scores(frame: pd.DataFrame, candidates: Sequence[str] = ()) -> Table:
    """A row per candidate (none named: all): its mean scores at each noise level, of a table with one world."""
    means = frame.groupby(["candidate", "noise"])[[group.name for group in GROUPS]].mean().map("{:.4f}".format)
    return _by_level("Scores", means, list(candidates or frame["candidate"].unique()))


def weights(frame: pd.DataFrame, candidates: Sequence[str]) -> Table:
    """A row per candidate and world: the clean tasks' share of the weight at each noise level.

    And at the lowest level the smallest weight of a task, its mean over the seeds and its least.
    """
    groups, lowest = frame.groupby(_CELL), frame["noise"].min()
    shares = groups["clean_weight"].mean().map("{:.2f}".format).to_frame("clean share")
    smallest = groups["smallest_weight"].agg(["mean", "min"]).xs(lowest, level="noise").map("{:.3f}".format)
    further = {f"smallest {lowest:g}": smallest["mean"], "in the worst seed": smallest["min"]}
    return _by_level("Weights", shares, _with_worlds(frame, candidates), **further)


def _with_worlds(frame: pd.DataFrame, candidates: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, world) for name in candidates for world in frame["world"].unique()]


def _by_level(title: str, texts: pd.DataFrame, keys: Sequence[str | tuple[str, str]], **further: pd.Series) -> Table:
    """A row per key (candidate, or candidate and world): `texts` at each noise level, and what is further known."""
    wide = texts.unstack("noise")
    wide.columns = [f"{measure} {level:g}" for measure, level in wide.columns]
    wide = wide.assign(**further)
    rows = [[*([key] if isinstance(key, str) else key), *wide.loc[key]] for key in keys]
    return Table.of_texts(title, [*("method", "benchmark")[: wide.index.nlevels], *wide], rows)
