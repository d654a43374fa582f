"""The commands of `excessmtl`."""

from typing import Annotated

import typer
from rich.table import Table

import excessmtl
from excessmtl.lab.cli.bench import bench
from excessmtl.lab.cli.crossval import crossval
from excessmtl.lab.cli.diagnose import diagnose
from excessmtl.lab.cli.errors import errors, plain_errors
from excessmtl.lab.cli.methods import methods
from excessmtl.lab.cli.report import report
from excessmtl.lab.cli.reproduce import reproduce
from excessmtl.lab.cli.sweep import sweep
from excessmtl.lab.cli.terminal import console
from excessmtl.lab.cli.train import train

app = typer.Typer(
    help="Multi-task learning when some tasks have bad labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Data sets: which there are, fetching one, where it lies.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.command()(plain_errors(methods))
app.command()(
    plain_errors(train, interrupted="the last finished epoch is kept, the same command with --resume goes on")
)
app.command()(plain_errors(reproduce, interrupted="finished runs are kept, the same command goes on with the rest"))
app.command()(plain_errors(crossval, interrupted="finished folds are kept, the same command goes on"))
app.command()(plain_errors(diagnose, interrupted="nothing was written"))
app.command()(plain_errors(report, interrupted="nothing was written"))
app.command()(plain_errors(sweep, interrupted="what is finished is kept, the same command goes on with the rest"))
app.command()(plain_errors(bench, interrupted="nothing was written; --quick takes a few seconds"))


def _version(show: bool) -> None:
    if show:
        console.print(f"excessmtl {excessmtl.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def benchmarks() -> None:
    """The benchmarks."""
    from excessmtl.lab.data import registry

    table = Table("name", "what it is", "stand-in without data")
    for entry in registry().values():
        table.add_row(entry.name, entry.summary, entry.stand_in or "")
    console.print(table)


@data_app.command("list")
def data_list() -> None:
    """The data sets by name, and whether they are available."""
    from excessmtl.lab.data import sources

    table = Table("name", "what it is", "available", "where to get it")
    for dataset in sources.catalogue():
        table.add_row(dataset.name, dataset.summary, "yes" if sources.where(dataset.name) else "no", dataset.directions)
    console.print(table)


@data_app.command("get")
@plain_errors
def data_get(name: Annotated[str, typer.Argument(help="Name of the data set.")]) -> None:
    """Fetch a data set into the cache folder."""
    from excessmtl.lab.data import sources

    console.print(str(sources.get(name, errors.print)), soft_wrap=True)


@data_app.command("where")
@plain_errors
def data_where(name: Annotated[str, typer.Argument(help="Name of the data set.")]) -> None:
    """Print the folder of a data set in the cache."""
    from excessmtl.lab.data import sources

    place = sources.where(name)
    if place is None:
        raise ValueError(
            f"{name} is not available; run `excessmtl data get {name}`, or `excessmtl data list` for directions"
        )
    console.print(str(place), soft_wrap=True)
