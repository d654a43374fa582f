"""The tables of docs/choosing.md, from files that other commands wrote.

    excessmtl sweep studies/all-methods.yaml
    python -m research.choosing runs/all-methods    # docs/data/choosing.csv from the runs, then the tables
    python -m research.choosing                     # the tables alone, from the files that are there

What a step costs is in `docs/data/speed/methods_cpu.json` (`python -m excessmtl.lab.speed methods`), what is known of a
method in `excessmtl.methods.catalogue`, and the errors of the groups in `docs/data/groups.csv`
(`python examples/groups.py --out docs/data/groups.csv`).
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from excessmtl.files import write_whole
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.compare.comparison import Spread, difference
from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.settings import settings
from excessmtl.lab.compare.table import Table
from excessmtl.methods import names
from excessmtl.methods.catalogue import CATALOGUE, rows

ROOT = Path(__file__).parent.parent
SCORES = ROOT / "docs" / "data" / "choosing.csv"
GROUPS = ROOT / "docs" / "data" / "groups.csv"
COSTS = ROOT / "docs" / "data" / "speed" / "methods_cpu.json"
NETWORK = "resnet18-4"
_UNKNOWN = "not measured"


def scores_of(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per benchmark and method: what the clean tasks score without noise and with it, and the difference.

    `lost` is the mean over the seeds of what noise in the other tasks takes from the clean ones: points of accuracy,
    or percent of the error without noise. `spread` is its standard deviation. `weight`: the share of the weight on
    clean tasks, with noise. `rank`: of the clean score with noise, 1 is the best. A method of which a run is missing or
    has diverged has no mean.
    """
    tables = []
    for setting in settings(runs):
        if setting.name != setting.benchmark:
            raise ValueError(f"{setting.name} is one of several settings of a benchmark; look at one of them at a time")
        levels = setting.noise_levels
        if len(levels) != 2 or levels[0] != 0:
            raise ValueError(f"{setting.name} has runs at noise {levels}; the table compares 0 with one other level")
        own = setting.runs.set_index(["label", "seed", "noise"])
        pairs = own["clean_score"].astype(float).unstack("noise").set_axis(["without", "with_noise"], axis=1)
        higher = next(iter(setting.metrics.values())).higher_is_better
        lost = [difference(first, last, higher, None if higher else first) for first, last in pairs.to_numpy()]
        pairs["lost"] = pd.Series(lost, pairs.index).where(pairs.notna().all(axis=1))
        by_method = pairs.groupby("label")
        table = by_method.agg(lambda values: values.mean(skipna=False)).assign(
            spread=by_method["lost"].std(ddof=1),
            weight=own["clean_weight"].xs(levels[1], level="noise").groupby("label").mean(),
            seeds=by_method["lost"].count().astype(float),
        )
        head = {"benchmark": setting.benchmark, "noise": levels[1], "unit": "points" if higher else "percent"}
        named = table.round(4).rename_axis("method").reset_index()
        tables.append(pd.DataFrame(head, index=named.index).join(named))
    scores = pd.concat(tables, ignore_index=True)
    signed = scores["with_noise"].where(scores["unit"] == "percent", -scores["with_noise"])
    return scores.assign(rank=signed.groupby(scores["benchmark"]).rank(na_option="bottom"))


def lost_to_noise(scores: pd.DataFrame, method: str) -> str:
    """What noise costs the clean tasks, benchmark by benchmark."""
    own = scores[(scores["method"] == method) & scores["lost"].notna()]
    units = {"points": "points", "percent": "%"}
    return ", ".join(f"{row.lost:.1f} {units[row.unit]}" for row in own.itertuples()) or _UNKNOWN


def methods_table(scores: pd.DataFrame) -> Table:
    """Every method: where it comes from, what it needs and costs, what noise costs it."""
    costs = json.loads(COSTS.read_text(encoding="utf-8"))["networks"][NETWORK]["ratio"]
    records = [
        row
        | {
            "method": f"[`{row['method']}`]({CATALOGUE[row['method']].link})",
            "cost": costs.get(row["method"]),
            "lost to noise": lost_to_noise(scores, row["method"]),
        }
        for row in rows()
    ]
    words = dict.fromkeys(("lost to noise", "scale-free", "good for"), "")
    return Table.of_records(records, {"method": "", "needs": "", "cost": "x{:.2f}".format, **words})


def groups_table() -> Table:
    """The errors of both methods for each group with bad records, and the difference, paired by seed."""
    errors = pd.read_csv(GROUPS).pivot_table(
        index=["bad_records", "seed"], columns="method", values="error", sort=False
    )
    lines = []
    for noisy, own in errors.groupby(level="bad_records", sort=False):
        change = Spread.of(own["excess"] - own["uniform"])
        means = [f"{own[method].mean():.2f}" for method in ("uniform", "excess")]
        lines.append([str(noisy), *means, f"{change.mean:+.2f} ± {change.deviation:.2f}"])
    return Table.of_texts("", ["bad records in", "`uniform` ↓", "`excess` ↓", "difference ↓"], lines)


def names_table() -> Table:
    """What LibMTL and TorchJD call our methods, where that is another name or means something else."""
    columns = ["LibMTL", "TorchJD", "here", "mind"]
    differing = [row for row in names.rows() if row[3] or any(_key(name) != _key(row[2]) for name in _listed(row[:2]))]
    return Table.of_texts("", columns, ([*map(_code, row[:3]), row[3]] for row in differing), columns)


def _listed(cells: Sequence[str]) -> list[str]:
    return [name for cell in cells for name in cell.split(", ") if name]


def _key(name: str) -> str:
    return name.lower().replace("_", "")


def _code(cell: str) -> str:
    return ", ".join(f"`{name}`" for name in _listed([cell]))


PAGE = Page(
    ROOT / "docs" / "choosing.md",
    {
        "methods": lambda: methods_table(pd.read_csv(SCORES)),
        "groups": groups_table,
        "names": names_table,
    },
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the runs, where they are given, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="folder of the sweep; default: the numbers that are there")
    options = parser.parse_args(arguments)
    try:
        scores = None if options.runs is None else scores_of(collect(options.runs))
    except ValueError as error:
        parser.error(str(error))
    if scores is not None:
        write_whole(SCORES, scores.to_csv(index=False).encode())
    PAGE.write()


if __name__ == "__main__":
    main()
