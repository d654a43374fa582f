"""The part of the page on VADER."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from excessmtl.files import atomic_write
from research.diagnosis import raters

_SEED = 0
_WITHIN = 0.08


def section(folder: Path, data: Path | None) -> str:
    """From the recorded numbers; where there are none, `data` is trained on; else an empty text."""
    made: dict[str, Callable[[Path, int], pd.DataFrame]] = {"domains": raters.domains, "raters": raters.annotators}
    frames = {}
    for name, make in made.items():
        path = folder / f"vader-{name}.csv"
        if not path.exists() and data is not None:
            with atomic_write(path) as file:
                file.write(make(data, _SEED).to_csv(index=False, float_format="%.4g").encode())
        if path.exists():
            frames[name] = pd.read_csv(path)
    return _text(frames["domains"], frames["raters"]) if len(frames) == len(made) else ""


def _text(domains: pd.DataFrame, people: pd.DataFrame) -> str:
    ordered = all(domains.sort_values("truth")["task"].to_numpy() == domains.sort_values("twice")["task"].to_numpy())
    worst = (domains["twice"] - domains["truth"]).abs().max()
    alone = domains.dropna(subset=["alone"]).sort_values("truth")["alone"].is_monotonic_increasing
    return f"""
**People who disagree.** VADER: is a text negative, neutral or positive, by one rater per text (seed {_SEED}). The truth
is how often a score has not the most common sign among the 15 to 99 scores of its text. With one second rater per
held-out text the four domains are {"" if ordered else "**not** "}ordered as their raters disagree, and the share of
wrong labels is off by at most {worst:.3f} (goal: {_WITHIN}). From predictions alone, of a network that counts words,
they are {"" if alone else "**not** "}ordered: hard and noisy look too much alike.

| domain | raters disagree | second labels | verdict | predictions alone | verdict | held-out texts |
|---|---:|---:|---|---:|---|---:|
{_rows(domains, ("task", "truth", "twice", "twice_verdict", "alone", "alone_verdict", "samples"))}

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
