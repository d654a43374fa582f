"""`python -m research.kit.tables`: the tables of research/kit/README.md, from the files in research/kit/results.

A table stands between `<!-- round4 -->` and `<!-- end -->`; configurations may be named after the round, else all.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from excessmtl.files import write_whole
from excessmtl.lab.cli.errors import plain_errors
from excessmtl.lab.compare.table import Table

FOLDER = Path(__file__).parent
SCORES = ("clean", "noisy", "overall")
_SETTING = ["problem", "level", "kind"]
_TABLE = re.compile(r"<!-- (round\d+)((?: \S+)*) -->\n.*?<!-- end -->", flags=re.S)
_POINTS, _SHARE = 0.3, 0.03
_MOST = 10.0
"""One setting counts no more than this, in either direction."""


def disturbed(frame: pd.DataFrame) -> pd.DataFrame:
    """Without the runs of noise that did nothing: kind "pair" leaves numbers as they are."""
    # Errors are stored as negative numbers: a problem whose noisy tasks are all numbers has nothing above zero.
    with_classes = frame.groupby("problem")["noisy"].transform("max") > 0
    return frame[(frame["kind"] != "pair") | with_classes]


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


def summary(frame: pd.DataFrame, names: Sequence[str] = ()) -> Table:
    """A row per configuration, the best with noise first."""
    found = in_tolerances(at_best_rate(disturbed(frame)))
    unknown = sorted(set(names) - set(found["config"]))
    if unknown:
        raise ValueError(f"no configuration {unknown[0]!r} among the results; name one of them")
    noisy = found[found["level"] > 0]
    groups = (found[found["classes"]], found[~found["classes"]], found[found["level"] == 0], noisy)
    every = sorted(set(found["config"]))  # a round may have no regressions
    means = [group.groupby("config")[list(SCORES)].mean().reindex(every) for group in groups]
    behind = (found[["clean", "overall"]] < -1).groupby(found["config"]).sum()
    order = (means[-1]["clean"] + means[-1]["overall"]).sort_values(ascending=False, kind="stable").index
    rows = [
        [name, *(_joined(mean.loc[name]) for mean in means), " / ".join(map(str, behind.loc[name]))]
        for name in order
        if not names or name in names
    ]
    columns = ["method", "classification", "regression", "noise 0", "with noise", "settings behind"]
    return Table.of_texts("", columns, rows)


def filled(page: str, results: Path) -> str:
    """The page with every table as the files have it."""

    def fill(found: re.Match[str]) -> str:
        file, names = found.groups()
        table = summary(pd.read_csv(results / f"{file}.csv.gz"), names.split())
        return f"<!-- {file}{names} -->\n{table.as_markdown()}<!-- end -->"

    return _TABLE.sub(fill, page)


def _joined(values: pd.Series) -> str:
    if values.isna().all():
        return ""
    return " / ".join(f"{value:.1f}".replace("-0.0", "0.0") for value in values)


def main(
    page: Annotated[Path, typer.Argument(metavar="PAGE.md", help="The page.")] = FOLDER / "README.md",
) -> None:
    """Fill the tables of the page."""
    write_whole(page, filled(page.read_text(encoding="utf-8"), FOLDER / "results").encode())


if __name__ == "__main__":
    typer.run(plain_errors(main, "the page is as it was"))
