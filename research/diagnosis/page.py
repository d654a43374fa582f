"""The measured parts of docs/diagnosis.md, from docs/data/diagnosis/summary.csv."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Table

DOCS = Path(__file__).parents[2] / "docs"
FILE = DOCS / "data" / "diagnosis" / "summary.csv"


def reported() -> pd.DataFrame:
    """The part that nothing was chosen on."""
    frame = pd.read_csv(FILE)
    # From 0 to 1 is no interval.
    return frame.assign(intervals=frame["tasks"] - frame["vacuous"], held=frame["covered"] - frame["vacuous"])


def goals() -> Table:
    """What the study was to show, and whether it did, also on seen and on fresh data alone; missed goals come first."""
    frame = reported()
    parts = [list(_goals(part)) for part in (frame, frame[~frame["fresh"]], frame[frame["fresh"]])]
    rows = sorted(zip(*parts, strict=True), key=lambda row: row[0][2])
    texts = [[every[0], every[1], seen[1], fresh[1], "yes" if every[2] else "**no**"] for every, seen, fresh in rows]
    headings = ["goal", "reached", "seen before", "fresh", "met"]
    return Table.of_texts("", headings, texts, words=headings[1:])


def _goals(frame: pd.DataFrame) -> Iterator[tuple[str, str, bool]]:
    clean, noisy = frame[frame["noise"] == "none"].sum(), frame[frame["noise"] != "none"].sum()
    alarms = int(clean["called_noisy"])
    yield "no clean task is called `noisy`", f"{alarms} of {clean['tasks']:,}", not alarms
    missed = noisy["noisy_called_clean"] / noisy["noisy_tasks"]
    yield "noise of 0.2 or more called `clean`: under 2 %", f"{missed:.1%} of {noisy['noisy_tasks']:,}", missed < 0.02
    for kind, own in frame.query("samples == 'all' and noise != 'none'").groupby("kind"):
        total = own.sum()
        error, given = total["error"] / total["with_rate"], total["given"] / total["learned"]
        yield f"mean error of a given rate at most 0.05, {kind}", f"{error:.3f}", error <= 0.05
        yield f"rate given in 85 % of learned noisy tasks, {kind}", f"{given:.0%}", given >= 0.85
    part = frame.assign(noisy=frame["noise"] != "none").groupby(["noisy", "group"]).sum(numeric_only=True)
    for goal, shares in {
        "intervals hold in 85 to 95 %, in each group with noise": (part["held"] / part["intervals"])[True],
        "the same, clean groups and intervals from 0 to 1 counted too": part["covered"] / part["tasks"],
    }.items():
        within, above = int(shares.between(0.85, 0.95).sum()), int((shares > 0.95).sum())
        yield goal, f"{within} of {len(shares)}; {above} above", within == len(shares)


def _table(frame: pd.DataFrame, by: str) -> Table:
    rows = []
    for name, own in frame.groupby(by, sort=False):
        clean, noisy = own[own["noise"] == "none"].sum(), own[own["noise"] != "none"].sum()
        rows.append(
            {
                by: name,
                "clean, called `noisy`": f"{clean['called_noisy']}/{clean['tasks']}",
                "noisy, called `clean`": f"{noisy['noisy_called_clean']}/{noisy['noisy_tasks']}",
                "called `noisy`": noisy["called_noisy"] / noisy["tasks"],
                "rate given": noisy["given"] / noisy["learned"],
                "mean error ↓": noisy["error"] / noisy["with_rate"],
                "intervals hold, clean": clean["held"] / clean["intervals"],
                "noisy": noisy["held"] / noisy["intervals"],
            }
        )
    formats = {name: "" if "," in name and "hold" not in name else ".0%" for name in list(rows[0])[1:]}
    return Table.of_records(rows, {by: ""} | formats | {"mean error ↓": ".3f"})


def by_group() -> Table:
    """A row per group of data, all held-out labels."""
    return _table(reported().query("samples == 'all'"), "group")


def by_samples() -> Table:
    """What fewer held-out labels cost."""
    return _table(reported(), "samples")


def by_noise() -> Table:
    """Each kind of noise, all held-out labels: its rates, and its bad labels ranked by us and by cleanlab."""
    frame = reported().query("samples == 'all' and noise != 'none'")
    rows = [
        {
            "noise": noise,
            "mean error ↓": own["error"].sum() / own["with_rate"].sum(),
            "intervals hold": own["held"].sum() / own["intervals"].sum(),
            "`report.suspects` ↑": own["precision"].sum() / own["ranked"].sum(),
            "cleanlab ↑": own["cleanlab"].sum() / own["ranked"].sum(),
        }
        for noise, own in frame.groupby("noise", sort=False)
    ]
    return Table.of_records(rows, dict.fromkeys(rows[0], ".3f") | {"noise": "", "intervals hold": ".0%"})


PARTS = {"goals": goals, "groups": by_group, "samples": by_samples, "noises": by_noise}
PAGE = Page(DOCS / "diagnosis.md", PARTS)
