"""The part of the page on VADER."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from excessmtl.files import atomic_write
from research.diagnosis import raters
from research.diagnosis.goals import Goal

_SEED = 0
_WITHIN = 0.08


def frames(folder: Path, data: Path | None) -> dict[str, pd.DataFrame]:
    """The recorded numbers; where there are none, `data` is trained on; empty without either."""
    made: dict[str, Callable[[Path, int], pd.DataFrame]] = {"domains": raters.domains, "raters": raters.annotators}
    found = {}
    for name, make in made.items():
        path = folder / f"vader-{name}.csv"
        if not path.exists() and data is not None:
            with atomic_write(path) as file:
                file.write(make(data, _SEED).to_csv(index=False, float_format="%.4g").encode())
        if path.exists():
            found[name] = pd.read_csv(path)
    return found if len(found) == len(made) else {}


def goals_of(domains: pd.DataFrame) -> list[Goal]:
    """Ordered, and near enough: from predictions alone, and with a second rater."""
    found = []
    for truth, of in (("from_mean", "not the mean's sign"), ("truth", "not the usual sign; chosen after a first look")):
        for column, how in (("alone", "predictions alone"), ("twice", "a second rater per held-out text")):
            known = domains[column].notna()
            ordered = bool(known.all() and domains.sort_values(truth)[column].is_monotonic_increasing)
            worst = (domains[column] - domains[truth]).abs().max()
            shown = (
                f"{'ordered' if ordered else 'not ordered'}, {known.sum()} of {len(domains)} have an estimate, off by "
            )
            text = f"VADER's domains ordered as their raters disagree ({of}), within {_WITHIN}: {how}"
            found.append(Goal(text, f"{shown}at most {worst:.3f}", ordered and bool(worst <= _WITHIN)))
    return found


def section(domains: pd.DataFrame, people: pd.DataFrame) -> str:
    """The two tables."""
    return f"""
**People who disagree.** VADER: is a text negative, neutral or positive, in the words of one rater per text (seed
{_SEED}), and with a second rater of each held-out text as `second_labels`. How often raters disagree has two answers:
how often a score has not the sign of the *mean* score of its text, next to which "neutral" is always wrong, and how
often it has not the most common sign among the 15 to 99 scores. The estimates are of the second kind. That it is the
fitting one was seen on the first estimates (seed 10), so it is no confirmation.

| domain | not the usual sign | not the mean's | second labels | verdict | predictions alone | verdict | texts |
|---|---:|---:|---:|---|---:|---|---:|
{_rows(domains, ("task", "truth", "from_mean", "twice", "twice_verdict", "alone", "alone_verdict", "samples"))}

**Raters as tasks.** Is a film review positive? One head per rater on one trunk, equal weights. The archive does not say
who gave a score: a person here is one of the scores of each text.

| rater | verdict | noise rate | skill | held-out texts |
|---|---|---:|---:|---:|
{_rows(people, ("task", "verdict", "noise_rate", "skill", "samples"))}
"""


def _rows(frame: pd.DataFrame, columns: tuple[str, ...]) -> str:
    lines = []
    for _, row in frame.iterrows():
        texts = [
            "" if pd.isna(row[name]) else f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name])
            for name in columns
        ]
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines)
