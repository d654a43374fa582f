"""`excessmtl report`: one HTML page on a folder of runs."""

from pathlib import Path
from typing import Annotated

import typer

from excessmtl.lab.cli.app import console

_METHOD = "Whose regret to show, by its label. Default: the one row of excess with its default options."


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with runs, or with a runs.csv of a sweep.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    method: Annotated[str | None, typer.Option(help=_METHOD)] = None,
    sections: Annotated[
        list[str], typer.Option(help="Add the sections of a package, such as `paper` or one of your own; repeat.")
    ] = [],  # noqa: B006
) -> None:
    """Write one self-contained HTML page: tables, figures, an explorer of every run, label noise, regret.

    Where the runs compare a method with others, its regret is printed as well.
    """
    from excessmtl.lab.compare.regret import verdict
    from excessmtl.lab.reports.page import write_report

    regrets = write_report(folder, out, method, sections)
    if regrets is not None:
        for sentence in regrets.left_out:
            console.print(f"no regret for {sentence}", soft_wrap=True)
        if len(regrets.table):
            console.print(verdict(regrets.table, regrets.method), soft_wrap=True)
    console.print(f"{out} ({out.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
