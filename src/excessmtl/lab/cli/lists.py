"""What is available: `excessmtl methods`, `excessmtl benchmarks` and `excessmtl data`."""

from typing import Annotated

import typer
from rich.table import Column, Table

from excessmtl.create import BALANCER_OPTIONS
from excessmtl.excess.method import rules
from excessmtl.lab.cli.app import console, errors, plain_errors
from excessmtl.methods import registry
from excessmtl.methods.catalogue import rows
from excessmtl.methods.documentation import options_of
from excessmtl.methods.names import NOTES, checked_name

data = typer.Typer(name="data", help="List, download and locate data sets.", no_args_is_help=True, add_completion=False)
_Name = Annotated[str, typer.Argument(help="Name of the data set.")]


def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A method, to list its options.")] = None,
) -> None:
    """List the weighting methods, what each needs and is good for; with a name, the options of that method."""
    if name is not None:
        _print_options(checked_name(name, registry()))
        return
    shown = ("method", "paper", "needs", "good for")  # what fits a terminal; docs/choosing.md has the rest
    table = Table(*(Column(heading, no_wrap=heading == "method") for heading in shown))
    for row in rows():
        table.add_row(*(row[column] for column in shown))
    console.print(table)
    console.print("`excessmtl methods NAME` lists the options of a method.")


def _print_options(name: str) -> None:
    factory = registry()[name]
    console.print(f"{name}: {(factory.__doc__ or '').strip().splitlines()[0]}", soft_wrap=True)
    if name in NOTES:
        console.print(NOTES[name], soft_wrap=True)
    for heading, rule in ({"": factory} if isinstance(factory, type) else rules()).items():
        if heading:
            console.print(f"\n{heading}")
        table = Table(Column("option", no_wrap=True), "type", "default", "what it is for")
        for option in options_of(rule):
            table.add_row(option.name, option.kind, option.default, option.meaning)
        console.print(table if table.row_count else "no options of its own")
    console.print(
        f"\nEvery method also has {', '.join(BALANCER_OPTIONS)}; Python's help(excessmtl.create) explains them.",
        soft_wrap=True,
    )


def benchmarks() -> None:
    """List the benchmarks."""
    from excessmtl.lab.data import registry as every_benchmark

    table = Table("name", "what it is", "stand-in without data")
    for entry in every_benchmark().values():
        table.add_row(entry.name, entry.summary, entry.stand_in or "")
    console.print(table)


@data.command("list")
def data_list() -> None:
    """List the data sets, and whether they are available."""
    from excessmtl.lab.data import sources

    table = Table("name", "what it is", "available", "where to get it")
    for dataset in sources.CATALOGUE:
        table.add_row(dataset.name, dataset.summary, "yes" if sources.where(dataset.name) else "no", dataset.directions)
    console.print(table)


@data.command("get")
@plain_errors
def data_get(name: _Name) -> None:
    """Download a data set into the cache folder."""
    from excessmtl.lab.data import sources

    console.print(str(sources.get(name, errors.print)), soft_wrap=True)


@data.command("where")
@plain_errors
def data_where(name: _Name) -> None:
    """Print the folder of a data set in the cache."""
    from excessmtl.lab.data import sources

    place = sources.where(name)
    if place is None:
        raise ValueError(
            f"{name} is not available; run `excessmtl data get {name}`, or `excessmtl data list` for directions"
        )
    console.print(str(place), soft_wrap=True)
