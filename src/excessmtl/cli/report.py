"""`excessmtl report`: one HTML page on a folder of runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

console = Console(highlight=False)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with runs, or with a runs.csv of a sweep.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one self-contained HTML page: tables, figures, an explorer of every run, the paper's claims."""
    from excessmtl.reports.page import write_report

    write_report(folder, out)
    console.print(f"{out} ({out.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
