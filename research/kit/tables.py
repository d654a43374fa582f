"""What a search says: `python -m research.kit.tables results.csv kit.csv.gz ...`.

Files of several calls are one search. README.md shows the committed `results.csv`.
"""

import sys
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from excessmtl.lab.compare.comparison import Spread
from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Table
from research import chosen

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.csv"
SCORES = ("clean", "noisy", "overall")
_SETTING = ["problem", "level", "kind"]
_POINTS = {"clean": 0.3, "noisy": 0.5, "overall": 0.5}
_SHARE = 0.03
_MOST = 10.0  # tolerances that one setting counts, in either direction
_PARTS = {
    "default": "the default",
    "no-contrast": "without exp(-3 noise) in the loss of numbers",
    "uniform+R'": "without the scales: uniform weights",
    "uniform+R": "without both: uniform weights, and the loss of numbers as before",
    "before": "as before: `trust` and `need` where tasks are numbers, in place of exp(-3 noise)",
    "chosen": "the default or that, by noisy validation labels",
    "uniform": "uniform weights with plain losses",
}
EITHER = ("default", "before")  # one of these, by noisy validation labels
RIVALS = ("uniform", "uw", "uniform+R", "uw+R", "famo+R", "imtl+R")


def at_best_rate(frame: pd.DataFrame) -> pd.DataFrame:
    """The scores of every seed at the learning rate with the best mean score on noisy validation labels.

    Accuracies are often equal: then it is the smallest of these rates.
    """
    key = [*_SETTING, "config"]
    means = frame.groupby([*key, "lr"])["val"].mean().round(5).reset_index()
    best = means.loc[means.groupby(key)["val"].idxmin(), [*key, "lr"]]
    return frame.merge(best, on=[*key, "lr"])


def leads(chosen: pd.DataFrame, rivals: Collection[str]) -> pd.DataFrame:
    """How much better each configuration is than each rival, in tolerances, and the upper end of its 90 % interval.

    A tolerance is 0.3 points of accuracy on clean tasks, 0.5 else, or 3 % of the error.
    """
    columns = [*_SETTING, "seed", "config", *SCORES]
    both = chosen[columns].merge(
        chosen.loc[chosen["config"].isin(rivals), columns], on=[*_SETTING, "seed"], suffixes=("", "_rival")
    )
    both = both[both["config"] != both["config_rival"]]
    for score in SCORES:
        rival = both.groupby([*_SETTING, "config_rival"])[f"{score}_rival"].transform("mean")
        unit = (rival.abs() * _SHARE).where(rival < 0, _POINTS[score])
        both[score] = ((both[score] - both[f"{score}_rival"]) / unit).clip(-_MOST, _MOST)
    groups = both.groupby([*_SETTING, "config", "config_rival"])[list(SCORES)]
    upper = groups.agg(lambda own: Spread.of(own).interval[1])
    return groups.mean().join(upper.add_suffix("_upper")).reset_index()


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per configuration, the one with the fewest regrets first; README.md says what the columns are."""
    frame = at_best_rate(frame)
    either = chosen(frame, "config", EITHER, _SETTING, "val").assign(config="chosen")
    found = leads(pd.concat([frame, either]), RIVALS)
    worse = found[["clean_upper", "overall_upper"]] < -1
    noise, slow = found["level"] > 0, found["problem"].str.contains("qm9|waves")
    any_worse = worse.any(axis=1)
    found = found.assign(**{"regret": any_worse, "in slow ones": any_worse & slow, "dominated": worse.all(axis=1)})
    counts = found.groupby("config")[["regret", "in slow ones", "dominated"]]
    rows = counts.sum().assign(of=counts.size())

    def lead(score: str, where: "pd.Series[bool]", rival: str = "uniform") -> "pd.Series[float]":
        return found[where & (found["config_rival"] == rival)].groupby("config")[score].mean()

    rows["noise 0"] = lead("overall", ~noise)
    rows["clean"], rows["all"] = lead("clean", noise), lead("overall", noise)
    rows["slow: clean"], rows["slow: all"] = lead("clean", slow, "uniform+R"), lead("overall", slow, "uniform+R")
    rows["SGD"] = lead("overall", found["problem"].str.contains("sgd"))
    rows["majority"] = found[found["problem"].str.contains("majority")].groupby("config")["clean"].min()
    return rows.sort_values("regret", kind="stable").round(1).reset_index()


def table(rows: pd.DataFrame) -> Table:
    """The same as text; empty where a configuration would be compared with itself."""
    texts = rows.map(lambda value: value if isinstance(value, str) else "" if pd.isna(value) else f"{value:zg}")
    return Table.of_texts("", list(rows), texts.to_numpy().tolist())


def parts() -> Table:
    """What the default loses without each of its parts."""
    by_name = pd.read_csv(RESULTS).set_index("config")
    texts = [[words, *map(str, by_name.loc[name, ["regret", "dominated", "of"]])] for name, words in _PARTS.items()]
    return Table.of_texts("", ["", "lost", "lost on both", "of"], texts)


PAGE = Page(FOLDER / "README.md", {"chosen": lambda: table(pd.read_csv(RESULTS))})


if __name__ == "__main__":
    everything = summary(pd.concat(map(pd.read_csv, sys.argv[2:])))
    everything.to_csv(sys.argv[1], index=False)
    print(table(everything).as_markdown())
