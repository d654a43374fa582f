"""What a search says: `python -m research.kit.tables kit.csv.gz` prints a row per configuration, the best first.

`results.csv` has these rows of the searches behind the default, one `round` each; the page shows the last words of it.
"""

import sys
from pathlib import Path

import pandas as pd

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Table

FOLDER = Path(__file__).parent
SCORES = ("clean", "noisy", "overall")
_GROUPS = ("classification", "regression", "noise_0", "with_noise")
_SETTING = ["problem", "level", "kind"]
_POINTS, _SHARE = 0.3, 0.03
_MOST = 10.0
"""One setting counts no more than this, in either direction."""
_RULES = ("new", "uw", "ship", "imtl", "uniform")
_SHOWN = (*_RULES, *(f"{rule}+R" for rule in _RULES), "new+k1", "new+k2h.1")
_ROUND = 4
"""The search that decided."""


def at_best_rate(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean scores over the seeds, at the learning rate with the best score on noisy validation labels.

    Accuracies on 1,500 samples are often equal: then it is the mean over the rates that are.
    """
    every = frame.groupby([*_SETTING, "config", "lr"])[["val", *SCORES]].mean().round({"val": 5}).reset_index()
    best = every.groupby([*_SETTING, "config"])["val"].transform("min")
    return every[every["val"] == best].groupby([*_SETTING, "config"])[list(SCORES)].mean().reset_index()


def in_tolerances(means: pd.DataFrame) -> pd.DataFrame:
    """How much better than uniform weighting without robust losses: 1 is 0.3 points of accuracy or 3 % of the error."""
    uniform = means[means["config"] == "uniform"][[*_SETTING, *SCORES]]
    both = means.merge(uniform, on=_SETTING, suffixes=("", "_uniform"))
    for score in SCORES:
        base = both[f"{score}_uniform"]
        unit = (base.abs() * _SHARE).where(base < 0, _POINTS)
        both[score] = ((both[score] - base) / unit).clip(-_MOST, _MOST)
    return both.assign(classes=both["clean_uniform"] > 0)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per configuration with the columns of `results.csv`, the best with noise first."""
    found = in_tolerances(at_best_rate(frame))
    some = (found["classes"], ~found["classes"], found["level"] == 0, found["level"] > 0)
    means = {name: found[rows].groupby("config")[list(SCORES)].mean() for name, rows in zip(_GROUPS, some, strict=True)}
    behind = (found[["clean", "overall"]] < -1).groupby(found["config"]).sum()
    columns = {f"{name}_{score}": own[score] for name, own in means.items() for score in SCORES}
    columns |= {f"behind_{score}": behind[score] for score in behind}
    every = pd.DataFrame(columns, index=sorted(set(found["config"])))
    order = (every["with_noise_clean"] + every["with_noise_overall"]).sort_values(ascending=False, kind="stable").index
    return every.loc[order].rename_axis("config").reset_index()


def table(rows: pd.DataFrame) -> Table:
    """Three numbers in a cell: clean tasks, noisy tasks, all."""
    texts = [
        [
            row["config"],
            *(_joined([row[f"{name}_{score}"] for score in SCORES]) for name in _GROUPS),
            f"{row['behind_clean']:.0f} / {row['behind_overall']:.0f}",
        ]
        for _, row in rows.iterrows()
    ]
    return Table.of_texts("", ["method", *(name.replace("_", " ") for name in _GROUPS), "settings behind"], texts)


def _joined(values: list[float]) -> str:
    return "" if pd.isna(values).all() else " / ".join(f"{value:z.1f}" for value in values)


def _chosen() -> Table:
    results = pd.read_csv(FOLDER / "results.csv")
    return table(results[(results["round"] == _ROUND) & results["config"].isin(_SHOWN)])


PAGE = Page(FOLDER / "README.md", {"chosen": _chosen})


if __name__ == "__main__":
    print(table(summary(pd.read_csv(sys.argv[1]))).as_markdown())
