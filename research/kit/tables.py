"""What a search says: `python -m research.kit.tables results.csv kit.csv.gz ...`.

It writes a row per configuration, the one with the fewest regrets first. Files of several calls are one search.
README.md shows the committed `results.csv`.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Table

FOLDER = Path(__file__).parent
SCORES = ("clean", "noisy", "overall")
_SETTING = ["problem", "level", "kind"]
_POINTS = {"clean": 0.3, "noisy": 0.5, "overall": 0.5}
_SHARE = 0.03
_MOST = 10.0
"""One setting counts no more than this many tolerances, in either direction."""
RIVALS = ("uniform", "uw", "famo", "imtl", "log_loss", "igb")
"""Each of them with plain and, as NAME+R, with robust losses."""
_NAMES = {
    "excess+R": "**the default**: `excess` with robust losses",
    "root": "**the candidate**, with robust losses",
    "root-entropy": "candidate, class losses with the entropy of the noise",
    "root-0": "candidate, `trust` = 0",
    "root-.25": "candidate, `trust` = 0.25",
    "root-no-precision": "candidate, squared errors without c / (c + r/V)",
    "root-plain": "candidate, plain losses",
    "uniform+R": "uniform weights, robust losses",
}


def at_best_rate(frame: pd.DataFrame) -> pd.DataFrame:
    """The scores of every seed at the learning rate with the best mean score on noisy validation labels.

    Accuracies are often equal: then it is the smallest of these rates.
    """
    key = [*_SETTING, "config"]
    means = frame.groupby([*key, "lr"])["val"].mean().round(5).reset_index()
    best = means.loc[means.groupby(key)["val"].idxmin(), [*key, "lr"]]
    return frame.merge(best, on=[*key, "lr"])


def leads(chosen: pd.DataFrame, rivals: list[str]) -> pd.DataFrame:
    """How much better each configuration is than each rival, in tolerances: a row per setting, configuration, rival.

    A tolerance is 0.3 points of accuracy on clean tasks, 0.5 else, or 3 % of the error. `SCORE` is the mean over the
    seeds and `SCORE_upper` the upper end of its 90 % interval.
    """
    columns = [*_SETTING, "seed", "config", *SCORES]
    both = chosen[columns].merge(
        chosen.loc[chosen["config"].isin(rivals), columns], on=[*_SETTING, "seed"], suffixes=("", "_rival")
    )
    both = both[both["config"] != both["config_rival"]]
    base = both.groupby([*_SETTING, "config_rival"])[[f"{score}_rival" for score in SCORES]].transform("mean")
    for score in SCORES:
        rival = base[f"{score}_rival"]
        unit = (rival.abs() * _SHARE).where(rival < 0, _POINTS[score])
        both[score] = ((both[score] - both[f"{score}_rival"]) / unit).clip(-_MOST, _MOST)
    groups = both.groupby([*_SETTING, "config", "config_rival"])[list(SCORES)]
    means, count = groups.mean(), groups.count()
    half = groups.std() / np.sqrt(count) * stats.t.ppf(0.95, (count - 1).clip(lower=1))
    return means.join((means + half).add_suffix("_upper")).reset_index()


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per configuration with the columns of `results.csv`, the one with the fewest regrets first."""
    chosen = at_best_rate(frame)
    names = [name for name in (*RIVALS, *(f"{rival}+R" for rival in RIVALS)) if name in set(chosen["config"])]
    found = leads(chosen, names)
    worse = found[["clean_upper", "overall_upper"]] < -1
    found = found.assign(
        regret=worse.any(axis=1),
        dominated=worse.all(axis=1),
        classes=~found["problem"].str.contains("bias|rf1|atp1d|jura|diamonds"),
    )
    counted = found.groupby("config")[["regret", "dominated"]].sum()
    counted["comparisons"] = found.groupby("config").size()

    def lead(score: str, rows: "pd.Series[bool]", rival: str) -> "pd.Series[float]":
        return found[rows & (found["config_rival"] == rival)].groupby("config")[score].mean()

    quiet, loud, noise = found["level"] == 0, found["level"] == 0.8, found["level"] > 0
    for kind, rows in (("classes", found["classes"]), ("numbers", ~found["classes"])):
        counted[f"noise_0_{kind}"] = lead("overall", quiet & rows, "uniform")
        counted[f"clean_{kind}"] = lead("clean", noise & rows, "uniform")
        counted[f"overall_{kind}"] = lead("overall", noise & rows, "uniform")
    counted["loud_clean"] = lead("clean", loud & found["classes"], "uniform+R")
    counted["loud_overall"] = lead("overall", loud & found["classes"], "uniform+R")
    counted["sgd"] = lead("overall", found["problem"].str.contains("sgd"), "uniform")
    counted["short"] = lead("noisy", noise & found["problem"].str.contains("short"), "uniform+R")
    counted["majority"] = found[found["problem"].str.contains("majority")].groupby("config")["clean"].min()
    return counted.sort_values("regret", kind="stable").round(2).reset_index()


def _both(row: "pd.Series[float]", first: str, second: str) -> str:
    return "" if pd.isna(row[first]) else f"{row[first]:z.1f} / {row[second]:z.1f}"


def table(rows: pd.DataFrame) -> Table:
    """What decides: two numbers in a cell are the clean tasks and all tasks, at noise 0 classes and numbers."""
    headings = [
        "method",
        "regret",
        "dominated",
        "noise 0",
        "classes",
        "numbers",
        "noise .8",
        "SGD",
        "short",
        "majority",
    ]
    texts = [
        [
            _NAMES.get(str(row["config"]), str(row["config"])),
            f"{row['regret']:.0f} of {row['comparisons']:.0f}",
            f"{row['dominated']:.0f}",
            _both(row, "noise_0_classes", "noise_0_numbers"),
            _both(row, "clean_classes", "overall_classes"),
            _both(row, "clean_numbers", "overall_numbers"),
            _both(row, "loud_clean", "loud_overall"),
            *("" if pd.isna(row[name]) else f"{row[name]:z.1f}" for name in ("sgd", "short", "majority")),
        ]
        for _, row in rows.iterrows()
    ]
    return Table.of_texts("", headings, texts)


PAGE = Page(FOLDER / "README.md", {"chosen": lambda: table(pd.read_csv(FOLDER / "results.csv"))})


if __name__ == "__main__":
    everything = summary(pd.concat(map(pd.read_csv, sys.argv[2:])))
    everything.to_csv(sys.argv[1], index=False)
    print(table(everything).as_markdown())
