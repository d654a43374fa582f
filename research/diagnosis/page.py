"""The measured part of docs/diagnosis.md, between two comments."""

import re
from collections.abc import Mapping

import pandas as pd

from research.diagnosis import raters_page
from research.diagnosis.goals import covered, mean_error
from research.diagnosis.measure import TWICE, separation

_GOALS, _TABLES = (
    "<!-- goals, by python -m research.diagnosis -->",
    "<!-- measured by python -m research.diagnosis -->",
)
_END = "<!-- end -->"


def filled(page: str, goals: str, tables: str) -> str:
    """The page with new goals and tables."""
    for start, text in ((_GOALS, goals), (_TABLES, tables)):
        if start not in page or _END not in page:
            raise ValueError(f"the page must hold the lines {start} and {_END}")
        pattern = f"{re.escape(start)}.*?{re.escape(_END)}"
        page = re.sub(pattern, lambda _, new=f"{start}\n{text}\n{_END}": new, page, flags=re.S)  # type: ignore[misc]
    return page


def tables(
    frame: pd.DataFrame,
    hard: pd.DataFrame,
    sizes: Mapping[str, pd.DataFrame],
    titles: Mapping[str, str],
    chosen: str,
    of_raters: Mapping[str, pd.DataFrame],
    corrected: pd.DataFrame,
    planned: int,
) -> str:
    """All of them.

    Args:
        frame: every task of the reported networks.
        hard: every task of the networks without noise whose tasks are hard.
        sizes: the reported networks, by how many held-out samples were looked at.
        titles: of the worlds.
        chosen: what the constants were chosen on.
        of_raters: what VADER gave, or nothing.
        corrected: what training without the suspicious labels gave, or nothing.
        planned: how many networks the study has at these seeds.
    """
    networks = len(frame[["world", "kind", "level", "seed"]].drop_duplicates())
    seeds = ", ".join(map(str, sorted(frame["seed"].unique())))
    left_out = [title for name, title in titles.items() if name not in {*frame["world"], *hard["world"]}]
    return f"""
{networks} of the study's {planned} networks at seeds {seeds}, trained with the default method, with noise in the
benchmark's own noisy tasks.
Held-out samples are the benchmark's test split ({frame["samples"].min():,} to {frame["samples"].max():,} samples),
disturbed like the training split. Constants were chosen on {chosen}. SARCOS has the same rows at every seed.
{f"Not run here: {', '.join(left_out)}." if left_out else ""}

**Noisy tasks, by data and kind of noise.** Mean absolute error of the noise rate, and that of the baseline: the error,
above chance, of the most confident quarter. Tasks without an estimate are not in the mean.

{by_world(frame, titles)}

**By level of symmetric noise.** Also where {TWICE} samples have a second label (`second_labels`).

{by_level(frame)}

**Clean tasks of the same networks.**

{clean_tasks(frame, titles)}

**Hard and clean.** No noise at all; too few samples, too few steps, too small a network, targets that are too fine.

{clean_tasks(hard, titles)}

**Fewer held-out samples.** The first so many of each task.

{by_samples(sizes)}

**Which labels.** Average precision of the ranking of wrong labels, beside the scores that cleanlab ranks by, on the
same predictions.

{ranking(frame, titles)}
{_corrected(corrected, titles)}{raters_page.section(of_raters["domains"], of_raters["raters"]) if of_raters else ""}"""


def by_world(frame: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """One line per world and kind of noise; the noisy tasks only."""
    lines = [
        "| | noise | noisy tasks | no estimate | mean error | most confident quarter | covered | noisy | suspect "
        "| other verdict |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (world, kind), own in frame[frame["truth"] > 0].groupby(["world", "kind"], sort=False):
        lines.append(f"| {titles[str(world)]} | {kind} | {_line(own)} |")
    return "\n".join(lines)


def by_level(frame: pd.DataFrame) -> str:
    """One line per type of task and level of symmetric noise."""
    lines = [
        "| | true rate | noisy tasks | no estimate | mean estimate | mean error | covered | noisy | suspect "
        "| other verdict | mean error, second labels |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    symmetric = frame[(frame["kind"] == "symmetric") & (frame["truth"] > 0)]
    for (kind, level), own in symmetric.groupby(["type", "level"], sort=True):
        count, unknown, error, _, *rest = _line(own).split(" | ")
        estimate = _shown(own["estimate"].mean(), 2)
        twice = _shown((own["twice"] - own["truth"]).abs().mean())
        lines.append(
            f"| {kind} | {level:g} | {count} | {unknown} | {estimate} | {error} | {' | '.join(rest)} | {twice} |"
        )
    return "\n".join(lines)


def clean_tasks(frame: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """One line per world; the clean tasks only."""
    lines = [
        "| | clean tasks | mean estimate | largest | noisy | suspect | too little evidence, or not learned |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for world, own in frame[frame["truth"] == 0].groupby("world", sort=False):
        verdicts = own["verdict"].value_counts()
        noisy, suspect, clean = (int(verdicts.get(name, 0)) for name in ("noisy", "suspect", "clean"))
        lines.append(
            f"| {titles[str(world)]} | {len(own)} | {own['estimate'].mean():.3f} | {own['estimate'].max():.2f} "
            f"| {noisy} | {suspect} | {len(own) - noisy - suspect - clean} |"
        )
    return "\n".join(lines)


def ranking(frame: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Average precision of the suspects."""
    lines = [
        "| | noise | `report.suspects` | label's probability | label's margin | adjusted margin |",
        "|---|---|---:|---:|---:|---:|",
    ]
    known = frame.dropna(subset=["precision"])
    for (world, kind), own in known.groupby(["world", "kind"], sort=False):
        values = own[["precision", "own_probability", "own_margin", "own_adjusted"]].mean()
        lines.append(f"| {titles[str(world)]} | {kind} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    return "\n".join(lines)


def _corrected(frame: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Nothing where nothing was trained."""
    if frame.empty:
        return ""
    lines = [
        f"| {titles[row['world']]} | {row['metric']} | {row['as they are']:.3f} | {row['corrected']:.3f} "
        f"| {row['clean labels']:.3f} |"
        for _, row in frame.iterrows()
    ]
    return "\n".join(
        [
            "",
            "**Does it help to follow it?** Symmetric noise 0.4, one seed. Labels whose `noise_probability` in a "
            "cross-validation (three folds) is above one half are changed: classes become the predicted one, numbers "
            "are left out. Score of the noisy tasks on clean test data after training anew.",
            "",
            "| | score | labels as they are | labels changed | clean labels |",
            "|---|---|---:|---:|---:|",
            *lines,
            "",
        ]
    )


def by_samples(frames: Mapping[str, pd.DataFrame]) -> str:
    """What fewer held-out samples cost."""
    lines = [
        "| held-out samples | mean error, noisy | mean estimate, clean | AUROC | covered | called noisy, of noisy |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, frame in frames.items():
        noisy, clean = frame[frame["truth"] >= 0.15], frame[frame["truth"] == 0]
        lines.append(
            f"| {name} | {mean_error(noisy):.3f} | {clean['estimate'].mean():.3f} | {separation(frame):.3f} "
            f"| {covered(frame):.0%} | {(noisy['verdict'] == 'noisy').mean():.0%} |"
        )
    return "\n".join(lines)


def _line(own: pd.DataFrame) -> str:
    verdicts = own["verdict"].value_counts()
    noisy, suspect = int(verdicts.get("noisy", 0)), int(verdicts.get("suspect", 0))
    quarter = (own["quarter"] - own["truth"]).abs().mean()
    return (
        f"{len(own)} | {int(own['estimate'].isna().sum())} | {_shown(mean_error(own))} | {_shown(quarter)} "
        f"| {covered(own):.0%} | {noisy} | {suspect} | {len(own) - noisy - suspect}"
    )


def _shown(number: float, digits: int = 3) -> str:
    return "" if pd.isna(number) else f"{number:.{digits}f}"
