"""`excessmtl train`: one run."""

import logging
import re
from dataclasses import fields
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.table import Table

from excessmtl.lab.cli.terminal import console, names_in

if TYPE_CHECKING:
    from excessmtl.lab.training.config import RunConfig

_data, _training, _machine = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Data and label noise", "Training", "Machine")
)


def train(
    context: typer.Context,
    benchmark: Annotated[
        str,
        typer.Argument(
            help="A benchmark (`excessmtl benchmarks` lists them), a .csv, .csv.gz or .parquet file, or a function of "
            "yours as package.module:function."
        ),
    ],
    method: Annotated[
        str,
        typer.Option(help="A method, 'single' for one network per task, or a rule of yours as package.module:Rule."),
    ] = "excess",
    architecture: Annotated[
        str,
        typer.Option(help="How tasks share the network: hard, cross_stitch, mtan, mmoe, cgc, ple, dselect_k or ltb."),
    ] = "hard",
    seed: Annotated[int, typer.Option(help="Of weights, batches and noise.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: runs/BENCHMARK-METHOD-noise-P-seed-S, a new one.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            help="Go on with the run in --out, or else with the last one of its name; more --epochs train it further."
        ),
    ] = False,
    option: Annotated[list[str], typer.Option(help="Option of the method, name=value; repeat.")] = [],  # noqa: B006
    loss: Annotated[
        str,
        typer.Option(help="plain, robust (follows the noise), gce, symmetric, bootstrapped, huber or general."),
    ] = "plain",
    data: Annotated[str | None, _data(help="File or folder with the benchmark's data.")] = None,
    targets: Annotated[str | None, _data(help="Of a table: the columns to predict, comma-separated.")] = None,
    kind: Annotated[
        list[str],
        _data(help="Of a table: target=regression, classification or binary; repeat. Default: inferred."),
    ] = [],  # noqa: B006
    id: Annotated[str | None, _data(help="Of a table: the column that names its rows, no input.")] = None,
    benchmark_option: Annotated[list[str], _data(help="Option of the benchmark, name=value; repeat.")] = [],  # noqa: B006
    noise: Annotated[float, _data(help="Share of bad labels in the noisy tasks, 0 to 1.")] = 0.0,
    noisy_tasks: Annotated[str | None, _data(help="Comma-separated task names. Default: the benchmark's.")] = None,
    noise_kind: Annotated[
        str, _data(help="uniform, pair, instance, outliers, bias or annotator; docs/benchmarks.md explains them.")
    ] = "uniform",
    exclude_true: Annotated[bool, _data(help="Noisy classes are never the true ones.")] = False,
    noisy_validation: Annotated[bool, _data(help="Validation labels are as noisy as the training labels.")] = False,
    redraw_each_epoch: Annotated[bool, _data(help="Draw the noise anew in every epoch.")] = False,
    epochs: Annotated[int | None, _training(help="Default: the benchmark's; with --resume, those of the run.")] = None,
    batch_size: Annotated[int | None, _training(help="Of all devices together. Default: the benchmark's.")] = None,
    optimiser: Annotated[str | None, _training(help="adam, adamw or sgd. Default: the benchmark's.")] = None,
    optimiser_option: Annotated[
        list[str], _training(help="Option of the optimiser by torch's name, momentum=0.9; repeat.")
    ] = [],  # noqa: B006
    learning_rate: Annotated[float | None, _training(help="Default: the benchmark's.")] = None,
    weight_decay: Annotated[float | None, _training(help="Default: the benchmark's.")] = None,
    schedule: Annotated[
        str | None, _training(help="Of the learning rate: constant or cosine. Default: the benchmark's.")
    ] = None,
    warmup_steps: Annotated[
        int | None, _training(help="Steps over which the learning rate rises. Default: the benchmark's.")
    ] = None,
    limit_batches: Annotated[int | None, _training(help="At most so many batches per epoch.")] = None,
    device: Annotated[str, _machine(help="auto, cpu, cuda, mps.")] = "auto",
    devices: Annotated[int, _machine(help="Processes that share every batch, each on a device.")] = 1,
    strategy: Annotated[
        str, _machine(help="With several devices: ddp (replicas) or fsdp (parameters divided).")
    ] = "ddp",
    precision: Annotated[str, _machine(help="32-true, bf16-mixed or 16-mixed.")] = "32-true",
    replay: Annotated[bool, _machine(help="On CUDA, record a step once and replay it where possible.")] = True,
) -> None:
    """Train a network on many tasks with one method and keep everything in a run folder."""
    # Imported here: the training half takes seconds to import, and `--help` should not.
    from excessmtl.lab.training.config import RunConfig
    from excessmtl.lab.training.loop import Run
    from excessmtl.lab.training.progress import ProgressBar

    # After the import, which sets the levels. Lightning's echo of the precision and its advice are for programmers.
    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Arguments with the names of a run's fields are these fields.
    values = {field.name: context.params[field.name] for field in fields(RunConfig) if field.name in context.params}
    values |= {
        "noisy_tasks": None if noisy_tasks is None else tuple(names_in(noisy_tasks)),
        "optimiser_options": pairs("--optimiser-option", optimiser_option) or None,
        "options": pairs("--option", option),
        "benchmark_options": pairs("--benchmark-option", benchmark_option) | of_a_table(targets, kind, id),
    }
    config = RunConfig(**values)
    place = _default_folder(config, resume) if out is None else out
    run = Run(config, place, resume)
    if not run.fabric.is_global_zero:
        run.execute()
        return
    console.print(
        f"{run.benchmark.name} ({run.benchmark.source}), method {config.name}, noise {config.noise:g}, seed {seed}",
        soft_wrap=True,
    )
    with ProgressBar(console, run.config.epochs, run.primary) as bar:
        run.watcher = bar
        summary = run.execute()
    console.print(summary_table(summary))
    console.print(f"run folder: {place}", soft_wrap=True)


def pairs(argument: str, values: list[str]) -> dict[str, Any]:
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


def of_a_table(targets: str | None, kind: list[str], id: str | None) -> dict[str, Any]:
    """The options of a table; a column may be called anything."""
    kinds = {}
    for value in kind:
        name, equals, word = value.rpartition("=")
        if not equals or not name:
            raise ValueError(f"--kind must look like target=kind, found {value!r}")
        kinds[name.strip()] = word.strip()
    options = {"targets": None if targets is None else names_in(targets), "kinds": kinds or None, "id": id}
    return {name: value for name, value in options.items() if value is not None}


def _default_folder(config: "RunConfig", resume: bool) -> Path:
    """Named after the run; where that is taken, with a number behind it. To resume: the last one of that name."""
    name = f"{Path(config.benchmark.removesuffix('.gz')).stem}-{config.name}-noise-{config.noise:g}-seed-{config.seed}"
    words = re.sub(r"[^A-Za-z0-9_.=-]+", "-", name).strip("-.")
    places = (Path("runs", words if number == 1 else f"{words}-{number}") for number in count(1))
    taken = list(takewhile(Path.exists, places))
    if resume and taken:
        return taken[-1]
    return Path("runs", words if not taken else f"{words}-{len(taken) + 1}")


def summary_table(summary: dict[str, Any]) -> Table:
    """Scores and weights of a run, task by task."""
    table = Table(
        title=f"{summary['method']} on {summary['benchmark']}, noise {summary['noise']:g}, {summary['epochs']} epochs"
    )
    for column in ("task", "labels", "metric", "score", "weight"):
        table.add_column(column, justify="right" if column in ("score", "weight") else "left")
    for task, score in summary["scores"].items():
        weight = "" if summary["weights"] is None else f"{summary['weights'][task] or 0:.3f}"
        arrow = "↑" if summary["higher_is_better"][task] else "↓"
        labels = "noise added" if task in summary["noisy_tasks"] and summary["noise"] else "as given"
        shown = "diverged" if score is None else f"{score:.4f}"
        table.add_row(task, labels, f"{summary['primary_metric'][task]} {arrow}", shown, weight)
    return table
