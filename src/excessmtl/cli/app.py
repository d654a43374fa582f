"""The commands of `excessmtl`."""

import logging
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

import excessmtl
from excessmtl.cli.bench import bench
from excessmtl.cli.errors import plain_errors
from excessmtl.cli.report import report
from excessmtl.cli.reproduce import reproduce
from excessmtl.cli.sweep import sweep

app = typer.Typer(
    help="Multi-task learning when some tasks have bad labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Data sets: which there are, fetching one, where it lies.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.command()(plain_errors(reproduce))
app.command()(plain_errors(report, interrupted="nothing was written"))
app.command()(plain_errors(sweep, interrupted="what is finished is kept, the same command goes on with the rest"))
app.command()(plain_errors(bench))
console = Console(highlight=False)


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


def _pairs(argument: str, values: list[str]) -> dict[str, Any]:
    """`k=v` options, values read as YAML (numbers, booleans, lists)."""
    pairs = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise ValueError(f"{argument} must look like name=value, found {value!r}")
        try:
            pairs[name.replace("-", "_")] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{argument} {value!r}: the value is neither a word, a number nor a list") from error
    return pairs


@app.command()
@plain_errors
def train(
    benchmark: Annotated[str, typer.Argument(help="Which benchmark; `excessmtl benchmarks` lists them.")],
    method: Annotated[str, typer.Option(help="Weighting method, or 'single' for one network per task.")] = "excess",
    noise: Annotated[float, typer.Option(help="Share of bad labels in the noisy tasks, 0 to 1.")] = 0.0,
    noisy_tasks: Annotated[str | None, typer.Option(help="Comma-separated task names. Default: the paper's.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, batches and noise.")] = 0,
    epochs: Annotated[int | None, typer.Option(help="Default: the benchmark's.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/latest"),
    data: Annotated[str | None, typer.Option(help="File or folder with the benchmark's data.")] = None,
    option: Annotated[list[str], typer.Option(help="Option of the method, name=value; repeat.")] = [],  # noqa: B006
    benchmark_option: Annotated[list[str], typer.Option(help="Option of the benchmark, name=value; repeat.")] = [],  # noqa: B006
    batch_size: Annotated[int | None, typer.Option(help="Default: the benchmark's.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Default: the benchmark's.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Default: the benchmark's.")] = None,
    limit_batches: Annotated[int | None, typer.Option(help="At most so many batches per epoch.")] = None,
    exclude_true: Annotated[bool, typer.Option(help="Noisy classes are never the true ones.")] = False,
    redraw_each_epoch: Annotated[bool, typer.Option(help="Draw the noise anew in every epoch.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    precision: Annotated[str, typer.Option(help="32-true, bf16-mixed or 16-mixed.")] = "32-true",
    replay: Annotated[bool, typer.Option(help="On CUDA, record a step once and replay it where possible.")] = True,
    resume: Annotated[bool, typer.Option(help="Go on with the run in --out, if there is one.")] = False,
) -> None:
    """Train a benchmark's network with one method and keep everything in a run folder."""
    # Imported here: the training half takes seconds to import, and `--help` should not.
    from excessmtl.training.config import RunConfig
    from excessmtl.training.loop import Run
    from excessmtl.training.progress import ProgressBar

    # After the import, which sets the levels. Lightning's echo of the precision and its advice are for programmers.
    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    config = RunConfig(
        benchmark=benchmark,
        method=method,
        seed=seed,
        noise=noise,
        noisy_tasks=None
        if noisy_tasks is None
        else tuple(name.strip() for name in noisy_tasks.split(",") if name.strip()),
        exclude_true=exclude_true,
        redraw_each_epoch=redraw_each_epoch,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        limit_batches=limit_batches,
        options=_pairs("--option", option),
        benchmark_options=_pairs("--benchmark-option", benchmark_option),
        data=data,
        device=device,
        precision=precision,
        replay=replay,
    )
    run = Run(config, out, resume)
    console.print(
        f"{run.benchmark.name} ({run.benchmark.source}), method {config.method}, noise {config.noise:g}, seed {seed}"
    )
    with ProgressBar(console, run.config.epochs or 0, run.primary) as bar:
        run.watcher = bar
        summary = run.execute()
    console.print(_summary_table(summary))
    console.print(f"run folder: {out}")


def _summary_table(summary: dict[str, Any]) -> Table:
    table = Table(
        title=f"{summary['method']} on {summary['benchmark']}, noise {summary['noise']:g}, {summary['epochs']} epochs"
    )
    for column in ("task", "labels", "metric", "score", "weight"):
        table.add_column(column, justify="right" if column in ("score", "weight") else "left")
    for task, score in summary["scores"].items():
        weight = "" if summary["weights"] is None else f"{summary['weights'][task] or 0:.3f}"
        arrow = "↑" if summary["higher_is_better"][task] else "↓"
        labels = "noisy" if task in summary["noisy_tasks"] and summary["noise"] else "clean"
        shown = "diverged" if score is None else f"{score:.4f}"
        table.add_row(task, labels, f"{summary['primary_metric'][task]} {arrow}", shown, weight)
    return table


@app.command()
def methods() -> None:
    """The weighting methods."""
    from excessmtl.methods import registry

    table = Table("name", "what it does")
    for name, factory in registry().items():
        table.add_row(name, (factory.__doc__ or "").strip().splitlines()[0])
    console.print(table)


@app.command()
def benchmarks() -> None:
    """The benchmarks."""
    from excessmtl.benchmarks import registry

    table = Table("name", "what it is", "stand-in without data")
    for entry in registry().values():
        table.add_row(entry.name, entry.summary, entry.stand_in or "")
    console.print(table)


@data_app.command("list")
def data_list() -> None:
    """The data sets by name, and whether they are at hand."""
    from excessmtl.benchmarks import sources

    table = Table("name", "what it is", "at hand", "where to get it")
    for dataset in sources.catalogue():
        table.add_row(dataset.name, dataset.summary, "yes" if sources.where(dataset.name) else "no", dataset.directions)
    console.print(table)


@data_app.command("get")
@plain_errors
def data_get(name: Annotated[str, typer.Argument(help="Name of the data set.")]) -> None:
    """Fetch a data set into the cache folder."""
    from excessmtl.benchmarks import sources

    console.print(str(sources.get(name)), soft_wrap=True)


@data_app.command("where")
@plain_errors
def data_where(name: Annotated[str, typer.Argument(help="Name of the data set.")]) -> None:
    """Print the folder of a data set in the cache."""
    from excessmtl.benchmarks import sources

    found = sources.where(name)
    if found is None:
        raise ValueError(
            f"{name} is not at hand; run `excessmtl data get {name}`, or `excessmtl data list` for directions"
        )
    console.print(str(found), soft_wrap=True)
