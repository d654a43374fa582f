"""What docs/robustness.md shows: `python -m research.robustness RUNS_DIR...`.

With folders it writes every run (`runs.csv.gz`), every comparison (`regret.csv`), and how all methods stand
(`methods.csv`). Runs of a later folder stand in for those of an earlier one with the same label in the same setting;
docs/data/robustness may be one.
"""

import math
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from matplotlib.figure import Figure

from excessmtl.files import atomic_write, write_whole
from excessmtl.lab.cli.app import plain_errors
from excessmtl.lab.compare.collect import collect, csv_text, read_table
from excessmtl.lab.compare.comparison import BETTER, EQUIVALENT, UNDECIDED, WORSE, WORST_FIRST
from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.palette import COLOURS
from excessmtl.lab.compare.regret import COLUMNS, ITSELF, Group, counted, regrets_of, write_regrets
from excessmtl.lab.compare.settings import settings
from excessmtl.lab.compare.table import Table
from research import DOCS, chosen, newest, publish_runs, with_code
from research.kit import tables as kit

DATA = DOCS / "data" / "robustness"
METHOD = "excess + robust loss"  # the label that is judged
TRUSTING = f"{METHOD}, trust"  # with `likelihoods=[]`: an ablation, and no rival
CHOSEN = f"{METHOD}, chosen"  # the one of these two with the lower error on noisy validation labels; no rival either
TITLES = {"clean": "clean tasks", "overall": "all tasks", "noisy": "noisy tasks"}
TOLERANCES = (Group("clean", 0.3, 3.0), Group("overall", 0.5, 3.0))  # differences up to which methods are equivalent
_DRAWN = {"multimnist": ("MultiMNIST", "accuracy, % ↑"), "sarcos": ("SARCOS", "error ↓")}
_LINES = {
    "uniform": ("plain training", COLOURS[2][0]),
    "uniform + robust loss": ("robust losses alone", COLOURS[1][0]),
    METHOD: ("MultiTaskLoss", COLOURS[0][0]),
}
SHOWN = ("uniform", "uniform + robust loss", "uw", "uw + robust loss", METHOD, TRUSTING)
SETTING = ("benchmark", "source", "epochs", "noise_kind", "noise", "noisy_tasks", "optimiser", "label")
_BLOCK = ["setting", "noise"]
_OF_CLASSES = ("multimnist", "tox21", "pacs")
_STANDING = {"method": "", "lost": ".0%", "differences": "d", "unbeaten": ".0%", "on both": "d", "levels": "d"}
_PARTS = {
    METHOD: "the default",
    TRUSTING: "`trust` and `need` as well",
    CHOSEN: "one of these two, by noisy validation labels",
    "uniform + robust loss": "without the scales: uniform weights",
    "uniform": "uniform weights with plain losses",
}


def judgements(frame: pd.DataFrame, method: str | None = None) -> pd.DataFrame:
    """The regrets of a method (None: the default) by `TOLERANCES` against every other method after the last epoch."""
    ours = {METHOD, TRUSTING, CHOSEN}
    left_out = ours - {method if method in ours else METHOD}
    every = regrets_of(frame[~frame["label"].isin(left_out)].reset_index(drop=True), method, TOLERANCES)
    table = pd.DataFrame(columns=list(COLUMNS)) if every is None else every.table
    return table[table["rival"] != ITSELF].reset_index(drop=True)


def with_chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs, and those of `METHOD` or `TRUSTING` once more as `CHOSEN`."""
    own = chosen(frame, "label", [METHOD, TRUSTING], SETTING[:-1], "validation_error")
    return pd.concat([frame, own.assign(label=CHOSEN)], ignore_index=True)


def standings(judged: pd.DataFrame) -> pd.DataFrame:
    """A row per setting, noise level and group of tasks: the verdict against the hardest rival."""
    verdicts = judged.groupby([*_BLOCK, "measure"], sort=False)["verdict"]
    return verdicts.agg(lambda own: min(own, key=WORST_FIRST.index)).reset_index()


def dominating(judged: pd.DataFrame) -> pd.DataFrame:
    """Setting, noise and rival where the method is worse than the rival on clean tasks *and* overall."""
    worse = judged[judged["verdict"] == WORSE].groupby([*_BLOCK, "rival"]).size()
    return worse[worse == len(TOLERANCES)].reset_index()[[*_BLOCK, "rival"]]


def against_all(judged: pd.DataFrame) -> str:
    """How the method stands among all its rivals."""
    places, both = standings(judged), dominating(judged)
    count = places["verdict"].value_counts().reindex(WORST_FIRST, fill_value=0)
    levels = len(places.drop_duplicates(_BLOCK))
    fine, lost = count[EQUIVALENT] + count[BETTER], int((judged["lower"] > judged["tolerance"]).sum())
    return (
        f"In {len(judged)} differences it is {counted(judged['verdict'])}; in {lost} the rival is ahead by more than "
        f"the tolerance, by the whole interval. It is equivalent to or better than every rival in {fine} of "
        f"{len(places)} (clean tasks and all tasks are two), worse than at least one in {count[WORSE]}, undecided in "
        f"{count[UNDECIDED]}. One rival is better on clean tasks *and* over all in {len(both.drop_duplicates(_BLOCK))} "
        f"of {levels} comparisons."
    )


def lost(judged: pd.DataFrame) -> Table:
    """Where rivals are better by more than the tolerance, by the whole interval: which, and by how much."""
    units, rows = {"points": "{:.1f} points", "percent": "{:.0f} %"}, []
    own = judged[judged["lower"] > judged["tolerance"]].sort_values("regret", ascending=False)
    for (setting, noise, measure), rivals in own.groupby([*_BLOCK, "measure"]):
        ahead = [f"{row.rival} {units[row.unit].format(row.regret)}" for row in rivals.itertuples()]
        rows.append([setting, f"{noise:g}", TITLES[measure], ", ".join(ahead)])
    words = ["benchmark", "tasks", last := "ahead, and by how much"]
    return Table.of_texts("", ["benchmark", "noise", "tasks", last], rows, words)


def of_every_method(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per method, the one that loses least first: how it stands against all others by the same measure.

    `lost`: the share of differences in which a rival is better by more than the tolerance, by the whole interval;
    `unbeaten`: that of the levels and groups of tasks where none is. `on both`: levels at which one is better on both.
    """
    rows, frame = [], with_chosen(frame)
    for label in sorted(set(frame["label"]) - {TRUSTING}):
        is_lost = (own := judgements(frame, label))["lower"] > own["tolerance"]
        unbeaten = ~is_lost.groupby([own[name] for name in (*_BLOCK, "measure")]).any()
        levels, on_both = (len(found.drop_duplicates(_BLOCK)) for found in (own, dominating(own)))
        rows.append([label, is_lost.mean(), len(own), unbeaten.mean(), on_both, levels])
    return pd.DataFrame(rows, columns=[*_STANDING]).sort_values("lost", kind="stable", ignore_index=True)


def parts(frame: pd.DataFrame) -> Table:
    """What each part buys where tasks are numbers: comparisons with the same tuned rivals that are lost without it."""
    numbers, rows = with_chosen(frame[~frame["benchmark"].isin(_OF_CLASSES)]), []
    for label, words in _PARTS.items():
        own = judgements(numbers[(numbers["label"] == label) | ~numbers["label"].isin(list(_PARTS))], label)
        lost = (own["lower"] > own["tolerance"]).groupby([own[name] for name in (*_BLOCK, "rival")])
        rows.append([words, *(str(int(count)) for count in (lost.any().sum(), lost.all().sum(), lost.ngroups))])
    return Table.of_texts("", ["", "lost", "lost on both", "of"], rows)


def with_worst(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs with the score of their worst task among the clean ones, `worst_score`."""
    worst = []
    for run in frame.to_dict("records"):
        scores = {task: score for task, score in run["scores"].items() if task not in run["noisy_tasks"]}
        least = min if all(run["higher_is_better"][task] for task in scores) else max
        worst.append(least(scores.values(), default=math.nan))
    return frame.assign(worst_score=worst)


def means(frame: pd.DataFrame, labels: Sequence[str] = SHOWN, parts: Sequence[str] = ("clean", "overall")) -> Table:
    """A row per setting and level: mean scores over the seeds on these parts of the tasks, after the last epoch.

    Settings whose tasks have different metrics have no means over tasks and are left out.
    """
    frame = with_worst(frame)
    rows = []
    for setting in settings(frame):
        if (metric := setting.common_metric) is None:
            continue
        for noise, own in setting.runs.groupby("noise"):
            unit, factor = ("% ↑", 100) if metric.is_share else ("error ↓", 1)
            # A diverged run is not left out.
            by_label = own.groupby("label")[[f"{part}_score" for part in parts]].agg(
                lambda scores: scores.mean(skipna=False)
            )
            pairs = {
                label: " / ".join(f"{factor * score:.3g}" for score in pair) for label, *pair in by_label.itertuples()
            }
            rows.append([setting.name, f"{noise:g}", unit, *(pairs.get(label, "") for label in labels)])
    return Table.of_texts("", ["benchmark", "noise", "score", *labels], sorted(rows))


def draw(frame: pd.DataFrame) -> Figure:
    """Scores of clean and noisy tasks against the share of bad labels, with deviations; a phone shows it whole."""
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


runs = cache(partial(read_table, DATA / "runs.csv.gz"))  # every run that is published, and every comparison
regrets = cache(partial(pd.read_csv, DATA / "regret.csv"))
PAGES = (
    Page(
        DOCS / "robustness.md",
        {
            "all": lambda: against_all(regrets()),
            "methods": lambda: Table.of_records(pd.read_csv(DATA / "methods.csv").to_dict("records"), _STANDING),
            "lost": lambda: lost(regrets()),
            "means": lambda: with_code(means(runs()), runs()),
            "others": lambda: means(runs(), tuple(_LINES), ("noisy", "worst")),
        },
    ),
    Page(DOCS / "estimators.md", {"parts": kit.parts, "study": lambda: parts(runs())}),
)


def main(folders: Annotated[list[Path] | None, typer.Argument()] = None) -> None:
    """Write the files from folders of runs, where some are given; then the picture and docs/robustness.md."""
    if folders:
        pacs = {"benchmark": lambda own: own["benchmark"].mask(own["source"].str.startswith("pacs"), "pacs")}
        frame = newest([collect(folder).assign(**pacs) for folder in folders], SETTING)  # `office-home` reads it
        judgements(frame, METHOD)  # refuses runs of other methods before anything is written
        publish_runs(frame, DATA / "runs.csv.gz", "metrics", "weights")
        rounded = read_table(DATA / "runs.csv.gz")
        write_regrets(judgements(rounded, METHOD), DATA / "regret.csv")
        write_whole(DATA / "methods.csv", csv_text(of_every_method(rounded)).encode())
    with atomic_write(DOCS / "figures" / "robustness.png") as file:
        draw(read_table(DATA / "runs.csv.gz")).savefig(file, format="png", dpi=150)
    for page in PAGES:
        page.write()


if __name__ == "__main__":
    typer.run(plain_errors(main))
