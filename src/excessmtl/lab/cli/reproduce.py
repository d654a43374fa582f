"""`excessmtl reproduce`: figures of the paper by name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from excessmtl.lab.cli.app import console, silence_lightning

if TYPE_CHECKING:
    from excessmtl.lab.paper.reproduction import Made


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="FIGURE", help="Name of the figure, or 'all'.")] = None,
    scale: Annotated[str, typer.Option(help="quick (minutes) or paper.")] = "quick",
    out: Annotated[Path, typer.Option(help="Folder for pictures (PNG, SVG) and numbers (CSV).")] = Path("figures"),
    jobs: Annotated[int | None, typer.Option(help="Number of training runs at a time. Default: one per core.")] = None,
    data: Annotated[list[str], typer.Option(help="Data of a benchmark, name=path; repeat.")] = [],  # noqa: B006
    runs: Annotated[Path | None, typer.Option(help="Draw from the runs in this folder and train nothing.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the figures, and how many networks they train.")] = False,
) -> None:
    """Reproduce a figure of the paper, with all its numbers. If stopped, the same command resumes."""
    from excessmtl.lab.paper import registry

    if show:
        _list()
        return
    if name is None:
        raise ValueError(f"name a figure: {', '.join(registry.registry())} or all (--list says what they show)")
    chosen, checked = registry.chosen(name, scale)
    paths = registry.data_paths(data)
    from excessmtl.lab.paper import reproduction

    silence_lightning()
    if runs is not None:
        _print(reproduction.draw_from(chosen, runs, out), f"from {runs}")
        return
    if not any(figure.about for figure in chosen):
        _print(reproduction.reproduce(chosen, checked, out, data=paths), checked)
        return
    from excessmtl.lab.studies.sweep import SweepProgress

    with SweepProgress(console) as watcher:
        _print(reproduction.reproduce(chosen, checked, out, data=paths, jobs=jobs, watcher=watcher), checked)


def _list() -> None:
    from excessmtl.lab.paper.plans import SCALES, needed_runs
    from excessmtl.lab.paper.registry import registry

    table = Table("name", "what it shows", *SCALES)
    known = registry()
    entries = {name: (entry.summary, [entry]) for name, entry in known.items()}
    for name, (summary, figures) in {**entries, "all": ("All of them; they share runs", list(known.values()))}.items():
        counts = [len(needed_runs(figures, scale, None)) for scale in SCALES]
        table.add_row(name, summary, *(f"{count} runs" if count else "computed" for count in counts))
    console.print(table)
    console.print("A run is a few seconds to a minute at `quick`; at `paper` it is for a GPU.", soft_wrap=True)


def _print(made: "Made", origin: str) -> None:
    for entry, written in made:
        console.print(f"{entry.name}: {entry.summary} ({origin})", soft_wrap=True)
        for line in map(str, written) if written else ["nothing to draw: these runs do not show it"]:
            console.print(f"  {line}", soft_wrap=True)
