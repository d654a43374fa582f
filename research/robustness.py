"""The page on robustness, computed from finished runs alone: `python -m research.robustness RUNS_DIR...`.

It writes `docs/robustness.md`, `docs/figures/robustness.png` and, under `docs/data/robustness`, every run
(`runs.csv.gz`), what was tuned (`chosen.csv`) and the comparisons that were lost (`regret.csv`).
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from excessmtl.analysis.collect import collect, write_table
from excessmtl.analysis.ranks import Ranks, mean_ranks
from excessmtl.analysis.regret import default_method
from excessmtl.analysis.regret_tables import every_regret, write_regrets
from excessmtl.analysis.robustness import (
    CHOSEN,
    EPOCHS,
    LAST,
    at_epoch,
    comparisons,
    dominating,
    noise_areas,
    regretted,
    scores_by_run,
)
from excessmtl.analysis.statistics import CONFIDENCE
from excessmtl.analysis.table import Table
from excessmtl.files import atomic_write, write_whole
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
    frame: pd.DataFrame, method: str | None, tuned: bool, note: str = "", oracles: pd.DataFrame | None = None
) -> str:
    """The page as Markdown.

    `method`: the label that is judged; `tuned`: whether there is a `chosen.csv` to cite; `note`: what comes first;
    `oracles`: runs that know what nobody knows.
    """
    scores = scores_by_run(frame)
    blocks = scores.drop_duplicates(["setting", "noise"])
    parts = [
        "# Robustness",
        "![Mean ranks with critical differences](figures/robustness.png)",
        f"Mean rank of every method (1 is the best) over {len(blocks)} comparisons: settings times noise levels. A bar "
        f"joins methods that {CONFIDENCE:.0%} confidence does not tell apart (Nemenyi).",
    ]
    parts += [note] if note else []
    if method is not None:
        parts += _goals(frame, scores, method)
    for epoch in EPOCHS:
        parts += _ranks(scores, epoch)
    if oracles is not None and method is not None:
        parts += ["## What could be reached", _ORACLES, oracle_table(frame, oracles, method)]
    parts += ["## Area under the noise curve", *_areas(scores)]
    parts += ["## Every score", _every_score(scores)]
    how = " What was tuned for each method is in [chosen.csv](data/robustness/chosen.csv)."
    parts += [
        "## How it was made",
        f"{len(frame)} runs, seeds: {frame['seed'].nunique()}; test scores on clean labels.{how if tuned else ''} "
        "[runs.csv.gz](data/robustness/runs.csv.gz) has every run.",
        f"```\n{_COMMAND}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _goals(frame: pd.DataFrame, scores: pd.DataFrame, method: str) -> list[str]:
    """Is the default ever dominated, or behind the best rival?"""
    parts = [f"## Where another method is better than {method}"]
    blocks = len(scores[scores["label"] == method].drop_duplicates(["setting", "noise"]))
    for epoch in EPOCHS:
        own = at_epoch(frame, epoch)
        if own.empty or method not in set(own["label"]):
            continue
        better, (lost, judged) = dominating(own, method), regretted(own, method)
        where = len(lost.drop_duplicates(["setting", "noise", "measure"])) if len(lost) else 0
        share = 1 - where / judged if judged else math.nan
        parts.append(
            f"**{_WORDS[epoch].capitalize()}.** Undominated: a rival is better on clean tasks and overall, beyond 0.3 "
            f"points or 3 % in both, in {len(better.drop_duplicates(['setting', 'noise']))} of {blocks} comparisons. "
            f"No regret: within 0.3 points or 3 % of every rival on clean tasks and 0.5 points or 3 % overall in "
            f"{share:.0%} of {judged} (judged by the lower end of the paired {CONFIDENCE:.0%} interval)."
        )
        if len(better):
            rows = [[str(row.setting), f"{row.noise:g}", str(row.rival)] for row in better.itertuples()]
            parts.append(Table.of_texts("", ["benchmark", "noise", "rival"], rows).as_markdown().strip())
        if len(lost):
            table = every_regret(lost).as_markdown().strip()
            summary = "The lost comparison" if len(lost) == 1 else f"The {len(lost)} lost comparisons"
            parts.append(f"<details><summary>{summary}</summary>\n\n{table}\n\n</details>")
    return parts


def _ranks(scores: pd.DataFrame, epoch: str) -> list[str]:
    found = {measure: mean_ranks(comparisons(scores, measure, epoch)) for measure in _TITLES}
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


def _every_score(scores: pd.DataFrame) -> str:
    keys = ["setting", "noise", "label", "epoch"]
    means = scores.groupby(keys, sort=True)[list(_TITLES)].agg(lambda values: values.mean(skipna=False)).reset_index()
    rows = [
        [row["setting"], f"{row['noise']:g}", row["label"], row["epoch"], *(f"{row[name]:.4g}" for name in _TITLES)]
        for row in means.to_dict("records")
    ]
    table = Table.of_texts("", ["benchmark", "noise", "method", "epoch", *_TITLES.values()], rows).as_markdown().strip()
    return f"<details><summary>{len(rows)} rows, means over the seeds</summary>\n\n{table}\n\n</details>"


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
        lost, _ = regretted(frame, method)  # refuses a label that no run has
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    out = wanted.out.parent
    scores = scores_by_run(frame)
    ranks: dict[str, Ranks] = {
        _TITLES[measure]: found
        for measure in ("clean", "overall", "noisy")
        if len((found := mean_ranks(comparisons(scores, measure))).mean)
    }
    with atomic_write(out / "figures" / "robustness.png") as file:
        draw_ranks(ranks, method).savefig(file, format="png", dpi=130)
    write_table(frame, out / _DATA / "runs.csv.gz")
    if chosen is not None:
        write_whole(out / _DATA / "chosen.csv", chosen.to_csv(index=False).encode())
    if oracles is not None:
        write_table(oracles, out / _DATA / "oracles.csv.gz")
    write_regrets(lost, out / _DATA / "regret.csv")
    note = (out / _NOTE).read_text(encoding="utf-8").strip() if (out / _NOTE).is_file() else ""
    write_whole(wanted.out, page(frame, method, chosen is not None, note, oracles).encode())
    print(f"{wanted.out}: {len(frame)} runs")


if __name__ == "__main__":
    main()
