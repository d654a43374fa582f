"""`python -m research.diagnosis`: cross-fit the predictors, diagnose, and write what docs/diagnosis.md shows."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

from excessmtl.files import write_whole
from excessmtl.lab.cli.app import plain_errors
from research.diagnosis import page
from research.diagnosis.measure import summary
from research.diagnosis.study import cells


def main(
    data: Annotated[Path, typer.Option(help="Folder with tables/*.npz and tox21.csv.gz.")],
    half: Annotated[str, typer.Option(help="report: write the page; choose: print the half to choose on.")] = "report",
    folder: Annotated[Path, typer.Option(help="Folder of the recorded predictions.")] = Path("runs/diagnosis"),
) -> None:
    """Cross-fit what is not recorded; 45 minutes on a busy machine. A stopped study goes on where it was."""
    warnings.filterwarnings("ignore", module="sklearn")
    frame = summary(cells(half), data, folder)
    if half == "choose":
        print(frame.groupby(["samples", "group", "noise"], sort=False).sum(numeric_only=True).to_string())
        return
    write_whole(page.FILE, frame.to_csv(index=False, float_format="%.4g").encode())
    page.PAGE.write()
    print(f"written: {page.FILE}, {page.PAGE.path}")


if __name__ == "__main__":
    typer.run(plain_errors(main, "what is recorded is kept, the same command goes on"))
