"""The page on robustness, computed from finished runs alone: `python -m research.robustness RUNS_DIR...`.

It writes `docs/robustness.md`, `docs/figures/robustness.png` and, under `docs/data/robustness`, every run
(`runs.csv.gz`), what was tuned (`chosen.csv`) and every comparison with its verdict (`regret.csv`).
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from excessmtl.files import atomic_write, write_whole
from excessmtl.lab.compare.collect import collect, write_table
from excessmtl.lab.compare.comparison import BETTER, EQUIVALENT, SEEDS, UNDECIDED, WORSE
from excessmtl.lab.compare.ranks import Ranks, mean_ranks
from excessmtl.lab.compare.regret import default_method
from excessmtl.lab.compare.regret_tables import write_regrets
from excessmtl.lab.compare.robustness import (
    CHOSEN,
    EPOCHS,
    LAST,
    TOLERANCES,
    at_epoch,
    comparisons,
    dominating,
    judged,
    noise_areas,
    scores_by_run,
    standings,
)
from excessmtl.lab.compare.statistics import CONFIDENCE
from excessmtl.lab.compare.table import Table
from research.oracle_table import oracle_table
from research.rank_picture import draw_ranks

_COMMAND = """excessmtl sweep studies/robustness/STUDY.yaml    # each of them
python -m research.robustness RUNS_DIR... [--oracles RUNS_DIR...]"""
_ORACLES = (
    "Networks that know what nobody knows: which tasks are noisy (these are left out, or get a small weight), or the "
    "clean labels. And a network for every task. Mean scores over the seeds after the last epoch; accuracies in "
    "percent, errors with a minus. [oracles.csv.gz](data/robustness/oracles.csv.gz) has the runs."
)
_TITLES = {
    "clean": "clean tasks",
    "noisy": "noisy tasks",
    "overall": "all tasks",
    "worst_clean": "the worst clean task",
}
_WORDS = {LAST: "last epoch", CHOSEN: "epoch chosen by noisy validation labels"}
_DATA = Path("data", "robustness")
_NOTE = _DATA / "note.md"
"""What a person has to say about the runs, beside them."""


def page(
    frame: pd.DataFrame,
    method: str | None,
    regrets: pd.DataFrame,
    tuned: bool,
    note: str = "",
    oracles: pd.DataFrame | None = None,
) -> str:
    """The page as Markdown.

    `method`: the label that is judged; `regrets`: what `judgements` gives for it; `tuned`: whether there is a
    `chosen.csv` to cite; `note`: what comes first; `oracles`: runs that know what nobody knows.
    """
    scores = scores_by_run(frame)
    parts = [
        "# Robustness",
        "![Mean ranks with critical differences](figures/robustness.png)",
        f"Mean rank of every method (1 is the best) over {_counts(scores)}. Ranks are averaged within a data set "
        "first: settings on the same data are not independent. A bar joins methods that "
        f"{CONFIDENCE:.0%} confidence does not tell apart (Nemenyi, counting data sets).",
    ]
    parts += [note] if note else []
    if method is not None:
        parts += _verdicts(regrets, method)
    for epoch in EPOCHS:
        parts += _ranks(scores, epoch)
    if oracles is not None and method is not None:
        parts += ["## What could be reached", _ORACLES, oracle_table(frame, oracles, method)]
    parts += ["## Area under the noise curve", *_areas(scores)]
    how = " What was tuned for each method is in [chosen.csv](data/robustness/chosen.csv)."
    parts += [
        "## How it was made",
        f"{len(frame)} runs, seeds: {frame['seed'].nunique()}; test scores on clean labels.{how if tuned else ''} "
        "[runs.csv.gz](data/robustness/runs.csv.gz) has every run with its scores.",
        f"```\n{_COMMAND}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def judgements(frame: pd.DataFrame, method: str | None) -> pd.DataFrame:
    """The comparisons of a method with every rival at both choices of the epoch, the column `epoch` first."""
    found = []
    for epoch in EPOCHS:
        own = at_epoch(frame, epoch)
        table = judged(own, method) if len(own) else pd.DataFrame()
        found += [table.assign(epoch=epoch)] if len(table) else []
    if not found:
        return pd.DataFrame(columns=["epoch", "verdict"])
    both = pd.concat(found, ignore_index=True)
    return both[["epoch", *(name for name in both if name != "epoch")]]


def _counts(scores: pd.DataFrame) -> str:
    """How many comparisons there are, and on how much data."""
    levels = len(scores.drop_duplicates(["setting", "noise"]))
    settings, data = scores["setting"].nunique(), scores["benchmark"].nunique()
    return (
        f"{levels} comparisons: {settings} setting{'s' if settings > 1 else ''} on {data} data "
        f"set{'s' if data > 1 else ''}, some of them at several noise levels"
    )


def _verdicts(regrets: pd.DataFrame, method: str) -> list[str]:
    """How the method compares with single rivals, and with all of them together."""
    parts = [f"## How {method} compares", _rule()]
    for epoch in EPOCHS:
        own = regrets[regrets["epoch"] == epoch]
        if own.empty:
            continue
        places, both = standings(own), dominating(own)
        dominated = len(both.drop_duplicates(["setting", "noise"]))
        parts += [
            f"**{_WORDS[epoch].capitalize()}.** {_together(places)} A rival is better on clean tasks *and* overall in "
            f"{dominated} of {len(places.drop_duplicates(['setting', 'noise']))} comparisons.",
            _against_each(own),
        ]
        worse = _where_worse(own)
        parts += [f"Worse than:\n\n{worse}"] if worse else []
    parts.append("[regret.csv](data/robustness/regret.csv) has every comparison.")
    return parts


def _rule() -> str:
    """What the words mean here, with the tolerances."""
    clean, overall = TOLERANCES
    return (
        f"Differences are paired by seed. *Equivalent*: the whole {CONFIDENCE:.0%} interval of their mean lies within "
        f"the tolerance, which is {clean.points:g} points or {clean.percent:g} % on clean tasks and {overall.points:g} "
        f"points or {overall.percent:g} % over all. *Better* or *worse*: the whole interval is on one side of 0. "
        f"*Undecided*: everything else, and fewer than {SEEDS} seeds. Many comparisons are made, and the intervals are "
        "not corrected for it: of a hundred differences that are 0, about five look better and five worse."
    )


def _together(places: pd.DataFrame) -> str:
    count = {word: int((places["verdict"] == word).sum()) for word in (WORSE, UNDECIDED, EQUIVALENT, BETTER)}
    return (
        f"Against all rivals together, clean tasks and all tasks counted separately: equivalent to or better than "
        f"every rival in {count[EQUIVALENT] + count[BETTER]} of {len(places)}, worse than at least one in "
        f"{count[WORSE]}, undecided in {count[UNDECIDED]}. By the means alone, which prove nothing, it is "
        f"behind no rival by more than the tolerance in {int(places['by_means'].sum())}."
    )


def _against_each(regrets: pd.DataFrame) -> str:
    """A row per rival: how often the method is better, equivalent, undecided and worse."""
    words = (BETTER, EQUIVALENT, UNDECIDED, WORSE)
    counts = regrets.groupby(["rival", "measure", "verdict"]).size()
    rivals = sorted(set(regrets["rival"]), key=lambda rival: (-int(counts.get((rival, "clean", BETTER), 0)), rival))
    rows = [
        [rival, *(str(counts.get((rival, group.name, word), 0)) for group in TOLERANCES for word in words)]
        for rival in rivals
    ]
    totals = regrets.groupby(["measure", "verdict"]).size()
    rows.append(["together", *(str(totals.get((group.name, word), 0)) for group in TOLERANCES for word in words)])
    columns = ["rival", *(f"{_TITLES[group.name]}: {word}" for group in TOLERANCES for word in words)]
    return Table.of_texts("", columns, rows).as_markdown().strip()


def _where_worse(regrets: pd.DataFrame) -> str:
    """A row per setting, level and group of tasks in which some rival is better."""
    rows = []
    for (setting, noise, measure), own in regrets[regrets["verdict"] == WORSE].groupby(["setting", "noise", "measure"]):
        unit = " %" if own["unit"].iloc[0] == "percent" else " points"
        rivals = [f"{row.rival} ({row.regret:.2g}{unit})" for row in own.itertuples()]
        rows.append([str(setting), f"{noise:g}", _TITLES[measure], ", ".join(rivals)])
    if not rows:
        return ""
    return Table.of_texts("", ["benchmark", "noise", "tasks", "rival"], rows).as_markdown().strip()


def _mean_ranks(scores: pd.DataFrame, measure: str, epoch: str = LAST) -> Ranks:
    table = comparisons(scores, measure, epoch)
    return mean_ranks(table, table.index.get_level_values("benchmark"))


def _ranks(scores: pd.DataFrame, epoch: str) -> list[str]:
    found = {measure: _mean_ranks(scores, measure, epoch) for measure in _TITLES}
    found = {measure: ranks for measure, ranks in found.items() if len(ranks.mean)}
    if not found:
        return []
    methods = list(next(iter(found.values())).mean.index)
    rows = [[name, *(f"{ranks.mean.get(name, math.nan):.2f}" for ranks in found.values())] for name in methods]
    rows.append(["critical difference", *(f"{ranks.critical_difference:.2f}" for ranks in found.values())])
    rows.append(["p (Friedman)", *(f"{ranks.p_value:.2g}" for ranks in found.values())])
    table = Table.of_texts("", ["method", *(_TITLES[measure] for measure in found)], rows)
    return [f"## Mean ranks, {_WORDS[epoch]}", table.as_markdown().strip()]


def _areas(scores: pd.DataFrame) -> list[str]:
    parts = []
    for measure in ("clean", "overall"):
        areas = noise_areas(scores, measure)
        if len(areas):
            rows = [[str(name), *(f"{value:.4g}" for value in own)] for name, own in areas.iterrows()]
            table = Table.of_texts("", ["benchmark", *map(str, areas.columns)], rows).as_markdown().strip()
            parts += [
                f"Mean score over the noise, {_TITLES[measure]}; accuracies in percent, errors with a minus.",
                table,
            ]
    return parts or ["No setting has two noise levels."]


def _read(folders: Sequence[Path]) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    frames, chosen = [collect(folder) for folder in folders], []
    chosen = [pd.read_csv(path) for folder in folders if (path := folder / "chosen.csv").is_file()]
    return pd.concat(frames, ignore_index=True), pd.concat(chosen, ignore_index=True) if chosen else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and all it links to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/robustness.md"))
    parser.add_argument("--method", help="the label that is judged; default: excess with its default options")
    parser.add_argument("--oracles", nargs="+", type=Path, help="folders of runs that know which tasks are noisy")
    wanted = parser.parse_args(arguments)
    try:
        frame, chosen = _read(wanted.folders)
        oracles = _read(wanted.oracles)[0] if wanted.oracles else None
        method = default_method(frame) if wanted.method is None else wanted.method
        regrets = judgements(frame, method)  # refuses a label that no run has
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    out = wanted.out.parent
    scores = scores_by_run(frame)
    ranks: dict[str, Ranks] = {
        _TITLES[measure]: found
        for measure in ("clean", "overall", "noisy")
        if len((found := _mean_ranks(scores, measure)).mean)
    }
    with atomic_write(out / "figures" / "robustness.png") as file:
        draw_ranks(ranks, method).savefig(file, format="png", dpi=130)
    write_table(frame, out / _DATA / "runs.csv.gz")
    if chosen is not None:
        write_whole(out / _DATA / "chosen.csv", chosen.to_csv(index=False).encode())
    if oracles is not None:
        write_table(oracles, out / _DATA / "oracles.csv.gz")
    write_regrets(regrets, out / _DATA / "regret.csv")
    note = (out / _NOTE).read_text(encoding="utf-8").strip() if (out / _NOTE).is_file() else ""
    write_whole(wanted.out, page(frame, method, regrets, chosen is not None, note, oracles).encode())
    print(f"{wanted.out}: {len(frame)} runs")


if __name__ == "__main__":
    main()
