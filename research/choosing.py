"""The tables of docs/choosing.md, from files that other commands wrote.

    excessmtl sweep studies/all-methods.yaml
    python -m research.choosing runs/all-methods    # docs/data/choosing.csv from the runs, then the tables
    python -m research.choosing --add runs/forum    # the methods of these runs beside those that are there
    python -m research.choosing                     # the tables alone, from the files that are there

What a step costs is in `docs/data/speed/methods_cpu.json` (`python -m excessmtl.lab.speed methods`), what is known of a
method in `excessmtl.methods.catalogue`, and the errors of the groups in `docs/data/groups.csv`
(`python examples/groups.py --out docs/data/groups.csv`).
"""

import argparse
import json
import math
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from excessmtl.files import atomic_write
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.settings import all_runs, settings
from excessmtl.lab.compare.table import Table
from excessmtl.methods import names
from excessmtl.methods.catalogue import CATALOGUE, rows

ROOT = Path(__file__).parent.parent
SCORES = ROOT / "docs" / "data" / "choosing.csv"
GROUPS = ROOT / "docs" / "data" / "groups.csv"
COSTS = ROOT / "docs" / "data" / "speed" / "methods_cpu.json"
_UNKNOWN = "not measured"
OUTDATED = (
    "Results of `gradnorm`, `modo`, `sdmgrad`, `stch`, `moml` and `fairgrad` in this table were computed before these "
    "methods were corrected, and have not been run again yet."
)
"""Stands above the tables with results, until the study has been repeated."""


def scores_of(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per benchmark and method: what the clean tasks score without noise and with it, and the difference.

    `lost` is the mean over the seeds of what noise in the other tasks takes from the clean ones: points of accuracy,
    or percent of the error without noise. `spread` is its standard deviation. `weight`: the share of the weight on
    clean tasks, with noise. `rank`: of the clean score with noise, 1 is the best.
    """
    found: list[dict[str, Any]] = []
    for benchmark, own in all_runs(runs).groupby("benchmark"):
        if len(settings(own)) > 1:
            names = " and ".join(setting.name for setting in settings(own))
            raise ValueError(f"{names} would be one column of the table; look at one of them at a time")
        levels = sorted(own["noise"].unique())
        if len(levels) != 2 or levels[0] != 0:
            raise ValueError(f"{benchmark} has runs at noise {levels}; the table compares 0 with one other level")
        by_seed = own.set_index(["label", "seed", "noise"])["clean_score"].astype(float).unstack("noise")
        higher = bool(next(iter(own["higher_is_better"].iloc[0].values())))
        without, with_noise = by_seed[levels[0]], by_seed[levels[1]]
        lost = 100 * (without - with_noise) if higher else 100 * (with_noise / without - 1)
        weights = own[own["noise"] == levels[1]].groupby("label")["clean_weight"].mean()
        columns = {"without": _mean(without), "with_noise": _mean(with_noise), "lost": _mean(lost)}
        spread = lost.groupby("label").std(ddof=1)
        table = pd.DataFrame({**columns, "spread": spread, "weight": weights, "seeds": lost.groupby("label").count()})
        table["rank"] = table["with_noise"].rank(ascending=not higher, na_option="bottom")
        found += [
            {
                "benchmark": benchmark,
                "noise": levels[1],
                "unit": "points" if higher else "percent",
                "method": label,
                **{name: round(float(value), 4) for name, value in row.items()},
            }
            for label, row in table.iterrows()
        ]
    return pd.DataFrame(found)


def with_others(scores: pd.DataFrame, before: pd.DataFrame) -> pd.DataFrame:
    """These methods ranked among those measured before; a method that is in both is measured anew."""
    again = pd.MultiIndex.from_frame(before[["benchmark", "method"]]).isin(
        pd.MultiIndex.from_frame(scores[["benchmark", "method"]])
    )
    found = pd.concat([before[~again], scores]).sort_values(["benchmark", "method"], ignore_index=True)
    for (_, unit), own in found.groupby(["benchmark", "unit"]):
        ranks = own["with_noise"].rank(ascending=unit != "points", na_option="bottom")
        found.loc[own.index, "rank"] = ranks
    return found


def _mean(values: pd.Series) -> pd.Series:
    """By method, over the seeds; NaN where a run is missing or has diverged, which must not make a method look good."""
    return values.groupby("label").agg(lambda own: own.mean(skipna=False))


def lost_to_noise(scores: pd.DataFrame, method: str) -> str:
    """What noise costs the clean tasks, benchmark by benchmark."""
    own = scores[scores["method"] == method] if len(scores) else scores
    units = {"points": "points", "percent": "%"}
    parts = [f"{row.lost:.1f} {units[row.unit]}" for row in own.itertuples() if math.isfinite(row.lost)]
    return ", ".join(parts) or _UNKNOWN


def methods_table(scores: pd.DataFrame) -> str:
    """Every method: where it comes from, what it needs and costs, what noise costs it."""
    networks = json.loads(COSTS.read_text(encoding="utf-8"))["networks"]
    header = ["method", "paper", "needs", *(f"cost, {name}" for name in networks)]
    header += ["memory", "lost to noise", "missing task", "scale-free", "good for"]
    lines = []
    for row in rows():
        name = row["method"]
        ratios = [networks[network]["ratio"].get(name) for network in networks]
        costs = [_UNKNOWN if ratio is None else f"x{ratio:.2f}" for ratio in ratios]
        paper = f"[{row['paper']}]({CATALOGUE[name].link})"
        more = [row["memory"], lost_to_noise(scores, name), row["missing task"], row["scale-free"], row["good for"]]
        lines.append([f"`{name}`", paper, row["needs"], *costs, *more])
    words = ("paper", "needs", "memory", "lost to noise", "missing task", "scale-free", "good for")
    return f"{OUTDATED}\n\n{_table(header, lines, words)}"


def robustness_table(scores: pd.DataFrame) -> str:
    """Every method with its scores, the best mean rank first."""
    if scores.empty:
        return "Not measured yet."
    names = list(scores["benchmark"].unique())
    header = ["method", "mean rank"]
    for benchmark in names:
        first = scores[scores["benchmark"] == benchmark].iloc[0]
        metric = "accuracy, %" if first["unit"] == "points" else "NMSE"
        header += [f"{benchmark}: {metric}, no noise", f"noise {first['noise']:g}", f"lost, {first['unit']}", "weight"]
    ranks = scores.groupby("method")["rank"].mean().sort_values(kind="stable")
    lines = []
    for method, rank in ranks.items():
        line = [str(method), f"{rank:.1f}"]
        for benchmark in names:
            own = scores[(scores["method"] == method) & (scores["benchmark"] == benchmark)]
            line += _cells(own.iloc[0]) if len(own) else [_UNKNOWN] * 4
        lines.append(line)
    return f"{OUTDATED}\n\n{_table(header, lines)}"


def _cells(row: pd.Series) -> list[str]:
    factor, digits = (100, 1) if row["unit"] == "points" else (1, 4)
    shown = [_shown(factor * row[name], digits) for name in ("without", "with_noise")]
    lost = f"{row['lost']:.1f} ± {row['spread']:.1f}" if math.isfinite(row["lost"]) else "–"
    return [*shown, lost, _shown(row["weight"], 2)]


def _shown(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


def groups_table() -> str:
    """The errors of both methods for each group with bad records, and the difference, paired by seed."""
    errors = pd.read_csv(GROUPS).pivot_table(
        index=["bad_records", "seed"], columns="method", values="error", sort=False
    )
    lines = []
    for noisy, own in errors.groupby(level="bad_records", sort=False):
        change = own["excess"] - own["uniform"]
        means = [f"{own[method].mean():.2f}" for method in ("uniform", "excess")]
        lines.append([str(noisy), *means, f"{change.mean():+.2f} ± {change.std(ddof=1):.2f}"])
    return _table(["bad records in", "`uniform`", "`excess`", "difference"], lines)


def names_table() -> str:
    """What LibMTL and TorchJD call our methods."""
    columns = ["LibMTL", "TorchJD", "here", "mind"]
    return _table(columns, ([*map(_code, row[:3]), row[3]] for row in names.rows()), columns)


def _code(listed: str) -> str:
    return ", ".join(f"`{name}`" for name in listed.split(", ") if name)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = ()) -> str:
    return Table.of_texts("", columns, rows, words).as_markdown()


def _scores() -> pd.DataFrame:
    return pd.read_csv(SCORES) if SCORES.exists() else pd.DataFrame()


PAGE = Page(
    ROOT / "docs" / "choosing.md",
    {
        "methods": lambda: methods_table(_scores()),
        "robustness": lambda: robustness_table(_scores()),
        "groups": lambda: groups_table(),
        "names": lambda: names_table(),
    },
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the runs, where they are given, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="folder of the sweep; default: the numbers that are there")
    parser.add_argument("--add", action="store_true", help="keep what was measured of other methods")
    options = parser.parse_args(arguments)
    try:
        scores = None if options.runs is None else scores_of(collect(options.runs))
        if scores is not None and options.add:
            scores = with_others(scores, pd.read_csv(SCORES))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if scores is not None:
        with atomic_write(SCORES) as file:
            file.write(scores.to_csv(index=False).encode())
    PAGE.write()


if __name__ == "__main__":
    main()
