"""The front that `trust` moves along, from finished runs: `python -m research.trust RUNS_DIR`.

It writes `docs/figures/trust.png` and `docs/data/robustness/trust.csv` from the runs of studies/robustness/trust.yaml.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from excessmtl.files import atomic_write, write_whole
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.compare.palette import COLOURS
from excessmtl.lab.compare.settings import all_runs

_STYLES = {"plain": (COLOURS[0][0], "o"), "robust": (COLOURS[1][0], "s")}


def front(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per benchmark, loss and trust (NaN: uniform weights): mean scores of the clean tasks and of all."""
    own = runs.assign(trust=[options.get("trust") for options in runs["options"]])
    keys = ["benchmark", "loss", "method", "trust"]
    scores = own.groupby(keys, dropna=False)[["clean_score", "overall_score"]]
    means = scores.mean().assign(seeds=scores.size()).reset_index()
    higher = {name: all(next(iter(rows["higher_is_better"])).values()) for name, rows in own.groupby("benchmark")}
    return means.assign(higher_is_better=means["benchmark"].map(higher))


def checked(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs, where those of one point differ in their seed alone."""
    apart = all_runs(runs)
    names = [f"{run['benchmark']} {run['loss']} {run['method']} {run['options']}" for run in apart.to_dict("records")]
    for name, labels in apart["label"].groupby(names).unique().items():
        if len(labels) > 1:
            raise ValueError(f"{name}: {' and '.join(labels)} would be one point; look at one of them at a time")
    return apart


def draw(points: pd.DataFrame) -> Figure:
    """A panel per benchmark; up and to the right is better."""
    names = list(points["benchmark"].unique())
    figure = Figure(figsize=(4.2 * len(names), 3.6), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        own = points[points["benchmark"] == name]
        for loss, (colour, marker) in _STYLES.items():
            line = own[(own["loss"] == loss) & own["trust"].notna()].sort_values("trust")
            axis.plot(line["clean_score"], line["overall_score"], color=colour, marker=marker, label=f"{loss} loss")
            for row in line.itertuples():
                place = (row.clean_score, row.overall_score)
                axis.annotate(f"{row.trust:g}", place, (4, 4), textcoords="offset points")
        for row in own[own["trust"].isna()].itertuples():
            axis.plot(row.clean_score, row.overall_score, "x", color="black", label="uniform, plain loss")
        axis.set(title=name, xlabel="clean tasks", ylabel="all tasks")
        if not own["higher_is_better"].all():
            axis.invert_xaxis()
            axis.invert_yaxis()
        axis.legend(fontsize="small")
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the picture and its numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the sweep")
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    wanted = parser.parse_args(arguments)
    try:
        points = front(checked(collect(wanted.folder)))
    except ValueError as error:
        parser.error(str(error))
    write_whole(wanted.docs / "data/robustness/trust.csv", points.to_csv(index=False, float_format="%.5g").encode())
    with atomic_write(wanted.docs / "figures/trust.png") as file:
        draw(points).savefig(file, format="png", dpi=130)


if __name__ == "__main__":
    main()
