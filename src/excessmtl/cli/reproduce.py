"""`excessmtl reproduce`: figures of the paper by name."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

console = Console(highlight=False)


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="FIGURE", help="Which figure, or 'all'.")] = None,
    scale: Annotated[str, typer.Option(help="quick (minutes) or paper.")] = "quick",
    out: Annotated[Path, typer.Option(help="Folder for pictures (PNG, SVG) and numbers (CSV).")] = Path("figures"),
    show: Annotated[bool, typer.Option("--list", help="List the figures.")] = False,
) -> None:
    """Draw a figure of the paper again, with every number beside it."""
    from excessmtl.studies import figures

    if show:
        table = Table("name", "what it shows")
        for entry in figures.registry().values():
            table.add_row(entry.name, entry.summary)
        console.print(table)
        return
    if name is None:
        raise ValueError(f"name a figure: {', '.join(figures.registry())} or all (--list says what they show)")
    chosen, checked = figures.chosen(name, scale)
    for entry in chosen:
        console.print(f"{entry.name}: {entry.summary} ({checked})", soft_wrap=True)
        for path in entry.draw(checked, out):
            console.print(f"  {path}", soft_wrap=True)
