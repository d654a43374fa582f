"""What the study was to show, and whether it did: the missed goals first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from research.diagnosis.measure import separation


@dataclass(frozen=True)
class Goal:
    """One of them."""

    text: str
    reached: str
    met: bool


def goals(frame: pd.DataFrame, hard: pd.DataFrame, titles: Mapping[str, str], more: Sequence[Goal] = ()) -> str:
    """A table, those missed first. `frame`, `hard`: a row per task; `titles`: of the worlds; `more`: other goals."""
    found = sorted([*_goals(frame, hard, titles), *more], key=lambda goal: goal.met)
    lines = [f"| {goal.text} | {goal.reached} | {'yes' if goal.met else '**no**'} |" for goal in found]
    return "\n".join(["| goal | reached | met |", "|---|---|---|", *lines])


def _goals(frame: pd.DataFrame, hard: pd.DataFrame, titles: Mapping[str, str]) -> Iterator[Goal]:
    noisy, clean = frame[frame["truth"] > 0], frame[frame["truth"] == 0]
    unknown = noisy[noisy["estimate"].isna()]
    error, guessed = mean_error(noisy), mean_error(noisy.fillna({"estimate": 0.5}))
    yield Goal(
        "an estimate for every noisy task",
        f"{len(noisy) - len(unknown)} of {len(noisy)}; the others are regressions in which every label has an error "
        "(rate 1), called `too little evidence`"
        if (unknown["truth"] == 1).all()
        else f"{len(noisy) - len(unknown)} of {len(noisy)}",
        unknown.empty,
    )
    text = "mean absolute error of the noise rate at most 0.04"
    yield Goal(f"{text}, all noisy tasks; a missing estimate counts as 0.5", f"{guessed:.3f}", guessed <= 0.04)
    yield Goal(f"{text}, noisy tasks that have an estimate", f"{error:.3f}", error <= 0.04)
    yield Goal(f"{text}, clean tasks", f"{mean_error(clean):.3f}", mean_error(clean) <= 0.04)
    for name, own in (("noisy", noisy), ("clean", clean), ("all", frame)):
        share = covered(own)
        yield Goal(
            f"intervals hold the truth in 85 to 95 % of the cases, {name} tasks", f"{share:.0%}", 0.85 <= share <= 0.95
        )
    apart = separation(frame)
    yield Goal(
        "noise of at least 0.2 told from none: AUROC at least 0.99; a missing estimate counts as 0.5",
        f"{apart:.3f}",
        apart >= 0.99,
    )
    alarms = int((clean["verdict"] == "noisy").sum() + (hard["verdict"] == "noisy").sum())
    yield Goal(
        "no clean task is called `noisy`, hard ones included", f"{alarms} of {len(clean) + len(hard)}", not alarms
    )
    for (world, kind), own in frame.dropna(subset=["precision"]).groupby(["world", "kind"], sort=False):
        values = own[["precision", "own_probability", "own_margin", "own_adjusted"]].mean()
        yield Goal(
            "wrong labels ranked at least as well as by the best of three of cleanlab's scores: "
            f"{titles[str(world)]}, {kind}",
            f"{values['precision']:.3f} against {values.iloc[1:].max():.3f}",
            bool(values["precision"] >= values.iloc[1:].max()),
        )


def covered(frame: pd.DataFrame) -> float:
    """Share of the intervals that hold the truth."""
    return float(((frame["low"] <= frame["truth"] + 1e-9) & (frame["truth"] <= frame["high"] + 1e-9)).mean())


def mean_error(own: pd.DataFrame) -> float:
    """Of the tasks that have an estimate."""
    return float((own["estimate"] - own["truth"]).abs().mean())
