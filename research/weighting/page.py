"""Tables of a document from the bench's CSV files: `python -m research.weighting.page research/weighting/README.md`.

A table stands between two comments; the first says what it shows, of which file and, if not of all, of which worlds,
then names its rows, if not all:

    <!-- by_noise data/trust.csv sarcos teacher-many
    uniform
    1 / r0
    -->
    (the table)
    <!-- end -->
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from excessmtl.files import atomic_write
from excessmtl.lab.cli.errors import plain_errors
from excessmtl.lab.compare.table import Table
from research.weighting import regrets

_VIEWS: dict[str, Callable[[pd.DataFrame, list[str]], Table]] = {
    view.__name__: view for view in (regrets.by_noise, regrets.by_world, regrets.scores, regrets.weights)
}
_TABLE = re.compile(rf"(<!-- ({'|'.join(_VIEWS)}) (\S+)(.*)\n((?:.+\n)*?)-->\n)[^<]*(<!-- end -->)")


def filled(page: str, folder: Path) -> str:
    """The page with every table as its file has it; files are named relative to `folder`."""

    def fill(found: re.Match[str]) -> str:
        head, view, file, worlds, rows, end = found.groups()
        frame = pd.read_csv(folder / file)
        if worlds:
            frame = frame[frame["world"].isin(worlds.split())]
        unknown = set(rows.splitlines()) - set(frame["candidate"])
        if unknown:
            raise ValueError(f"{file} has no row {min(unknown)!r} for the table {view!r}; name a candidate of it")
        return f"{head}{_VIEWS[view](frame, rows.splitlines()).as_markdown()}{end}"

    return _TABLE.sub(fill, page)


def main(path: Annotated[Path, typer.Argument(metavar="PAGE.md", help="The document.")]) -> None:
    """Fill the tables of a document from the files that it names."""
    text = filled(path.read_text(encoding="utf-8"), path.parent)
    with atomic_write(path) as file:
        file.write(text.encode())


if __name__ == "__main__":
    typer.run(plain_errors(main, "the document is as it was"))
