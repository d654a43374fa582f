"""The measured parts of docs/diagnosis.md, from docs/data/diagnosis/summary.csv."""

import pandas as pd

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Table
from research import DOCS

FILE = DOCS / "data" / "diagnosis" / "summary.csv"


def reported() -> pd.DataFrame:
    """The part that nothing was chosen on."""
    frame = pd.read_csv(FILE)
    # From 0 to 1 is no interval.
    return frame.assign(intervals=frame["tasks"] - frame["vacuous"], held=frame["covered"] - frame["vacuous"])


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
    """A row per group of data, all held-out labels; then together, by the kind of task."""
    frame = reported().query("samples == 'all'")
    return _table(pd.concat([frame, frame.assign(group="all " + frame["kind"])]), "group")


def by_noise() -> Table:
    """Each kind of noise, all held-out labels: its rates, and its bad labels ranked by us and by cleanlab."""
    noisy = reported().query("samples == 'all' and noise != 'none'")
    sums = noisy.groupby("noise", sort=False).sum(numeric_only=True).reset_index()
    shares = {
        "mean error ↓": sums["error"] / sums["with_rate"],
        "intervals hold": sums["held"] / sums["intervals"],
        "`report.suspects` ↑": sums["precision"] / sums["ranked"],
        "cleanlab ↑": sums["cleanlab"] / sums["ranked"],
    }
    formats = {"noise": "", **dict.fromkeys(shares, ".3f"), "intervals hold": ".0%"}
    return Table.of_records(sums.assign(**shares).to_dict("records"), formats)


PAGE = Page(
    DOCS / "diagnosis.md", {"groups": by_group, "samples": lambda: _table(reported(), "samples"), "noises": by_noise}
)
