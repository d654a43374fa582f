"""The measured parts of docs/diagnosis.md, from docs/data/diagnosis.csv and the files in docs/data/diagnosis."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Table
from research.diagnosis.measure import RANKINGS, covered, mean_error, separation
from research.diagnosis.study import HARD, REPORTED

DOCS = Path(__file__).parents[2] / "docs"
TASKS, FOLDER = DOCS / "data" / "diagnosis.csv", DOCS / "data" / "diagnosis"
TITLES = {world.name: world.title for world in (*REPORTED, *HARD)}
_OTHERS = ["own_probability", "own_margin", "own_adjusted"]


def goals() -> Table:
    """What the study was to show, and whether it did: the missed goals first."""
    rows = sorted(_goals(pd.read_csv(TASKS), pd.read_csv(FOLDER / "hard.csv")), key=lambda row: row[2])
    texts = [[text, reached, "yes" if met else "**no**"] for text, reached, met in rows]
    return Table.of_texts("", ["goal", "reached", "met"], texts, words=["reached", "met"])


def _goals(frame: pd.DataFrame, hard: pd.DataFrame) -> Iterator[tuple[str, str, bool]]:
    noisy, clean = frame[frame["truth"] > 0], frame[frame["truth"] == 0]
    known = int(noisy["estimate"].notna().sum())
    yield "an estimate for every noisy task", f"{known} of {len(noisy)}", known == len(noisy)
    for name, error in (
        ("noisy tasks that have an estimate", mean_error(noisy)),
        ("all noisy tasks; a missing estimate counts as 0.5", mean_error(noisy.fillna({"estimate": 0.5}))),
        ("clean tasks", mean_error(clean)),
    ):
        yield f"mean error of the noise rate at most 0.04, {name}", f"{error:.3f}", error <= 0.04
    for name, own in (("noisy", noisy), ("clean", clean)):
        share = covered(own)
        yield f"85 to 95 % of the intervals hold the truth, {name} tasks", f"{share:.0%}", 0.85 <= share <= 0.95
    apart = separation(frame)
    text = "noise of at least 0.2 told from none: AUROC at least 0.99; a missing estimate counts as 0.5"
    yield text, f"{apart:.3f}", apart >= 0.99
    alarms = int((clean["verdict"] == "noisy").sum() + hard["noisy"].sum())
    count = len(clean) + int(hard["tasks"].sum())
    yield "no clean task is called `noisy`, hard ones included", f"{alarms} of {count}", not alarms
    ranked = frame.groupby(["world", "kind"])[list(RANKINGS)].mean().dropna()
    ahead = int((ranked["precision"] >= ranked[_OTHERS].max(axis=1)).sum())
    text = "wrong labels ranked at least as well as by the best of three of cleanlab's scores, data by kind of noise"
    yield text, f"{ahead} of {len(ranked)}", ahead == len(ranked)


def by_data() -> Table:
    """A row per world: its noisy tasks, then its clean ones."""
    rows = []
    for world, own in pd.read_csv(TASKS).groupby("world", sort=False):
        noisy, clean = own[own["truth"] > 0], own[own["truth"] == 0]
        found = noisy["verdict"].value_counts()
        rows.append(
            {
                "data": TITLES[str(world)],
                "noisy tasks": len(noisy),
                "no estimate": int(noisy["estimate"].isna().sum()),
                "mean error ↓": mean_error(noisy),
                "baseline ↓": float((noisy["quarter"] - noisy["truth"]).abs().mean()),
                "intervals that hold": covered(noisy),
                "called noisy": int(found.get("noisy", 0)),
                "called suspect": int(found.get("suspect", 0)),
                "clean tasks": len(clean),
                "clean: mean estimate ↓": float(clean["estimate"].mean()),
                "clean: called suspect": int((clean["verdict"] == "suspect").sum()),
            }
        )
    numbers = {
        "mean error ↓": ".3f",
        "baseline ↓": ".3f",
        "intervals that hold": ".0%",
        "clean: mean estimate ↓": ".3f",
    }
    return Table.of_records(rows, {"data": ""} | {name: numbers.get(name, "d") for name in list(rows[0])[1:]})


def by_samples() -> Table:
    """What fewer held-out samples cost."""
    named = {
        "samples": "held-out samples",
        "error": "mean error, noisy ↓",
        "clean_estimate": "mean estimate, clean ↓",
        "covered": "intervals that hold",
        "called_noisy": "called noisy, of noisy",
    }
    formats = dict(zip(named.values(), ("", ".3f", ".3f", ".0%", ".0%"), strict=True))
    return Table.of_records(pd.read_csv(FOLDER / "samples.csv").rename(columns=named).to_dict("records"), formats)


def ranking() -> Table:
    """Average precision of the suspects by kind of noise, beside what cleanlab ranks by."""
    means = pd.read_csv(TASKS).groupby("kind", sort=False)[list(RANKINGS)].mean().rename(columns=RANKINGS)
    return Table.of_records(means.reset_index().to_dict("records"), {"kind": ""} | dict.fromkeys(means, ".3f"))


def raters() -> Table:
    """The domains of VADER."""
    named = {"task": "domain", "truth": "raters off the usual sign", "twice": "with second labels"}
    named |= {"twice_verdict": "verdict by them", "alone": "predictions alone", "alone_verdict": "verdict alone"}
    rows = pd.read_csv(FOLDER / "vader_domains.csv").rename(columns=named).to_dict("records")
    formats = {name: ".2f" if key in ("truth", "twice", "alone") else "" for key, name in named.items()}
    return Table.of_records(rows, formats)


PAGE = Page(
    DOCS / "diagnosis.md",
    {"goals": goals, "data": by_data, "samples": by_samples, "ranking": ranking, "raters": raters},
)
