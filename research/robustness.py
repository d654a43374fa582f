"""What docs/robustness.md shows: `python -m research.robustness RUNS_DIR...`.

With folders it writes every run (`runs.csv.gz`) and every comparison with its verdict (`regret.csv`). Runs of a later
folder stand in for those of an earlier one with the same label in the same setting; docs/data/robustness may be one.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from matplotlib.figure import Figure

from excessmtl.files import atomic_write
from excessmtl.lab.cli.app import plain_errors
from excessmtl.lab.compare.collect import collect, read_table, write_table
from excessmtl.lab.compare.comparison import BETTER, EQUIVALENT, UNDECIDED, WORSE, WORST_FIRST
from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.palette import COLOURS
from excessmtl.lab.compare.regret import COLUMNS, ITSELF, Group, regrets_of, write_regrets
from excessmtl.lab.compare.settings import settings
from excessmtl.lab.compare.table import Table

DOCS = Path(__file__).parents[1] / "docs"
DATA = DOCS / "data" / "robustness"
METHOD = "excess + robust loss"
"""The label that is judged."""
TITLES = {"clean": "clean tasks", "overall": "all tasks", "noisy": "noisy tasks"}
LAST, CHOSEN = "last", "chosen"
TOLERANCES = (Group("clean", 0.3, 3.0), Group("overall", 0.5, 3.0))
"""Up to which difference two methods count as equivalent."""
_WORDS = {LAST: "After the last epoch", CHOSEN: "At the epoch chosen by noisy validation labels"}
_DRAWN = {"multimnist": ("MultiMNIST", "accuracy, % ↑"), "sarcos": ("SARCOS", "error ↓")}
_LINES = {
    "uniform": ("plain training", COLOURS[2][0]),
    "uniform + robust loss": ("robust losses alone", COLOURS[1][0]),
    METHOD: ("MultiTaskLoss", COLOURS[0][0]),
}
SHOWN = ("uniform", "uniform + robust loss", "famo + robust loss", "uw + robust loss", "excess", METHOD)
"""The labels whose means the page shows."""
_BLOCK = ["setting", "noise"]


def newest(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All runs in one table; of those with one label in one setting, at one noise level, the last table's alone."""
    runs = pd.concat([own.assign(part=part) for part, own in enumerate(frames)], ignore_index=True)
    names = ["benchmark", "source", "epochs", "noise_kind", "noise", "noisy_tasks", "optimiser", "label"]
    last = runs["part"].groupby([runs[name].astype(str) for name in names]).transform("max")
    return runs[runs["part"] == last].drop(columns="part").reset_index(drop=True)


def judgements(frame: pd.DataFrame, method: str | None = None) -> pd.DataFrame:
    """The regrets of a method (None: the default) by `TOLERANCES` against every other method, at both choices of epoch.

    The column `epoch` comes first. Runs that recorded no choice by validation are left out of the second.
    """
    known = frame[[isinstance(scores, dict) for scores in frame["chosen_scores"]]]
    tables = [pd.DataFrame(columns=["epoch", *COLUMNS])]
    for epoch, own in {LAST: frame, CHOSEN: known.assign(scores=known["chosen_scores"])}.items():
        every = regrets_of(own.reset_index(drop=True), method, TOLERANCES) if len(own) else None
        if every is not None:
            tables.append(every.table[every.table["rival"] != ITSELF].assign(epoch=epoch))
    return pd.concat([table for table in tables if len(table)] or tables, ignore_index=True)[["epoch", *COLUMNS]]


def standings(judged: pd.DataFrame) -> pd.DataFrame:
    """A row per setting, noise level and group of tasks: the verdict against the hardest rival."""
    verdicts = judged.groupby([*_BLOCK, "measure"], sort=False)["verdict"]
    return verdicts.agg(lambda own: min(own, key=WORST_FIRST.index)).reset_index()


def dominating(judged: pd.DataFrame) -> pd.DataFrame:
    """Setting, noise and rival where the method is worse than the rival on clean tasks *and* overall."""
    worse = judged[judged["verdict"] == WORSE].groupby([*_BLOCK, "rival"]).size()
    return worse[worse == len(TOLERANCES)].reset_index()[[*_BLOCK, "rival"]]


def against_all(judged: pd.DataFrame) -> str:
    """A sentence for each choice of the epoch: how the method stands among all its rivals."""
    parts = []
    for epoch, words in _WORDS.items():
        own = judged[judged["epoch"] == epoch]
        places, both = standings(own), dominating(own)
        count = places["verdict"].value_counts().reindex(WORST_FIRST, fill_value=0)
        levels = len(places.drop_duplicates(["setting", "noise"]))
        parts.append(
            f"- *{words}* it is equivalent to or better than every rival in {count[EQUIVALENT] + count[BETTER]} of "
            f"{len(places)}, worse than at least one in {count[WORSE]}, undecided in {count[UNDECIDED]}. A rival is "
            f"better on clean tasks *and* over all in {len(both.drop_duplicates(['setting', 'noise']))} of {levels} "
            "comparisons."
        )
    return "\n".join(parts)


def against_each(judged: pd.DataFrame) -> Table:
    """A row per rival: how often the method is better, equivalent, undecided and worse after the last epoch."""
    last = judged[judged["epoch"] == LAST]
    words = (BETTER, EQUIVALENT, UNDECIDED, WORSE)
    columns = [(group.name, word) for group in TOLERANCES for word in words]
    counts = last.groupby(["rival", "measure", "verdict"]).size().unstack(["measure", "verdict"], fill_value=0)
    counts = counts.reindex(columns=pd.MultiIndex.from_tuples(columns), fill_value=0)
    counts = counts.iloc[counts[columns[0]].map(lambda count: -count).argsort(kind="stable")]
    counts.loc["together"] = counts.sum()
    rows = [[rival, *map(str, own)] for rival, own in zip(counts.index, counts.to_numpy().tolist(), strict=True)]
    return Table.of_texts("", ["rival", *(f"{TITLES[name]}: {word}" for name, word in columns)], rows)


def means(frame: pd.DataFrame, labels: Sequence[str] = SHOWN) -> Table:
    """A row per setting and level: mean scores over the seeds on clean tasks and on all, after the last epoch.

    Settings whose tasks have different metrics have no means over tasks and are left out.
    """
    rows = []
    for setting in settings(frame):
        metric = setting.common_metric
        if metric is None:
            continue
        for noise, own in setting.runs.groupby("noise"):
            unit, factor = ("% ↑", 100) if metric.is_share else ("error ↓", 1)
            # A diverged run is not left out.
            by_label = own.groupby("label")[["clean_score", "overall_score"]].agg(
                lambda scores: scores.mean(skipna=False)
            )
            pairs = {
                label: " / ".join(f"{factor * score:.3g}" for score in pair) for label, *pair in by_label.itertuples()
            }
            rows.append([setting.name, f"{noise:g}", unit, *(pairs.get(label, "") for label in labels)])
    return Table.of_texts("", ["benchmark", "noise", "score", *labels], sorted(rows))


def draw(frame: pd.DataFrame) -> Figure:
    """The scores of clean and of noisy tasks against the share of bad labels, a line per method, with deviations.

    Narrow, so that a phone shows it whole.
    """
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    for row, (benchmark, (title, unit)) in zip(figure.subplots(2, 2), _DRAWN.items(), strict=True):
        own = frame[(frame["benchmark"] == benchmark) & (frame["noise_kind"] == "uniform")]
        own = own[(own["optimiser"] == "adamw") & (own["noisy_tasks"].map(len) <= 2)]
        for axes, measure in zip(row, ("clean", "noisy"), strict=True):
            for label, (name, colour) in _LINES.items():
                scores = own[own["label"] == label].groupby("noise")[f"{measure}_score"]
                factor = 100 if "%" in unit else 1
                levels, mean = 100 * scores.mean().index, factor * scores.mean()
                axes.errorbar(levels, mean, factor * scores.std(), color=colour, label=name, marker="o", markersize=4)
            axes.set(title=f"{title}, {TITLES[measure]}", xlabel="bad labels, %", ylabel=unit, xticks=levels)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", alpha=0.3)
    figure.legend(
        handles=axes.get_legend_handles_labels()[0], loc="outside lower center", ncols=3, frameon=False, columnspacing=1
    )
    return figure


@cache
def _runs(name: str = "runs") -> pd.DataFrame:
    return read_table(DATA / f"{name}.csv.gz")


@cache
def regrets() -> pd.DataFrame:
    """Every comparison that is published."""
    return pd.read_csv(DATA / "regret.csv")


PAGE = Page(
    DOCS / "robustness.md",
    {
        "all": lambda: against_all(regrets()),
        "each": lambda: against_each(regrets()),
        "means": lambda: means(_runs()),
        "present": lambda: means(_runs("present"), tuple(_runs("present")["label"].unique())),
        "present_each": lambda: against_each(judgements(_runs("present"), METHOD)),
    },
)


def main(folders: Annotated[list[Path] | None, typer.Argument()] = None) -> None:
    """Write the files from folders of runs, where some are given; then the picture and docs/robustness.md."""
    if folders:
        frame = newest([collect(folder) for folder in folders])
        judgements(frame, METHOD)  # refuses runs of other methods before anything is written
        write_table(frame, DATA / "runs.csv.gz")
        # Of the numbers that are published, which are rounded.
        write_regrets(judgements(read_table(DATA / "runs.csv.gz"), METHOD), DATA / "regret.csv")
    with atomic_write(DOCS / "figures" / "robustness.png") as file:
        draw(read_table(DATA / "runs.csv.gz")).savefig(file, format="png", dpi=150)
    PAGE.write()


if __name__ == "__main__":
    typer.run(plain_errors(main))
