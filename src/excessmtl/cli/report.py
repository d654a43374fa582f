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
    """Write one self-contained HTML page: tables, figures, an explorer of every run, the paper's claims.

    Where the runs compare `excess` with other methods, its regret is printed as well.
    """
    from excessmtl.reports.page import write_report

    write_report(folder, out)
    _print_regrets(folder)
    console.print(f"{out} ({out.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)


def _print_regrets(folder: Path) -> None:
    from excessmtl.analysis.collect import collect
    from excessmtl.analysis.regret import can_compare, regret_table
    from excessmtl.analysis.regret_summary import verdict, worst_regrets
    from excessmtl.sweeps.tables import JUDGED

    frame = collect(folder)
    regrets = regret_table(frame, JUDGED) if can_compare(frame, JUDGED) else None
    if regrets is None or regrets.empty:  # no two runs of the same seed and level
        return
    for table in worst_regrets(regrets, JUDGED):
        console.print(table.as_rich())
    console.print(verdict(regrets, JUDGED), soft_wrap=True)
