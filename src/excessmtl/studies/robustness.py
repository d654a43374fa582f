"""The robustness study: what label noise in one task does to the others, method by method and noise level by level.

`make demo` runs it on the bundled digits. Runs are kept under `--out` and not run again; beside them the study writes
`robustness.csv` (one row per run) and `robustness.md` (the table).
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table

from excessmtl.files import atomic_write
from excessmtl.training.config import RunConfig
from excessmtl.training.loop import train

METHODS = ("excess", "uniform", "gradnorm", "mgda", "groupdro", "imtl")
COLUMNS = {"clean_score": "clean tasks", "noisy_score": "noisy tasks", "overall_score": "all tasks"}


def one_run(config: RunConfig, out: Path) -> dict[str, Any]:
    """One run, in a process of its own."""
    torch.set_num_threads(1)  # several runs share the cores
    label = " ".join([config.method, *(f"{name}={value}" for name, value in config.options.items())])
    folder = out / f"{label.replace(' ', '-')}-noise-{config.noise:g}-seed-{config.seed}"
    return {**train(config, folder, resume=True), "label": label}


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """`name` or `name:option=value,...`."""
    name, _, rest = text.partition(":")
    options = dict(pair.partition("=")[::2] for pair in rest.split(",")) if rest else {}
    return name, {key: yaml.safe_load(value) for key, value in options.items()}


def cells(summaries: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows of the table: noise, method, scores, clean weight; mean and standard deviation where there are seeds."""
    rows = []
    groups: dict[tuple[float, str], list[dict[str, Any]]] = {}
    for summary in summaries:
        groups.setdefault((summary["noise"], summary["label"]), []).append(summary)
    for noise, label in sorted(groups, key=lambda key: (key[0], METHODS.index(key[1]) if key[1] in METHODS else 99)):
        group = groups[noise, label]
        shown = [_spread([summary[column] for summary in group], 100, 1) for column in COLUMNS]
        weights = [summary["clean_weight"] for summary in group]
        rows.append([f"{noise:g}", label, *shown, _spread(weights, 1, 2) if None not in weights else ""])
    return rows


def _percent(score: float | None) -> str:
    return "diverged" if score is None else f"{100 * score:.1f} %"


def _spread(values: Sequence[float | None], factor: float, digits: int) -> str:
    present = [factor * value for value in values if value is not None]
    if not present:
        return ""
    text = f"{statistics.mean(present):.{digits}f}"
    return text if len(present) < 2 else f"{text} ± {statistics.stdev(present):.{digits}f}"


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """The table for a document."""
    head = ["noise", "method", *COLUMNS.values(), "clean weight"]
    lines = [head, ["---:", "---", *["---:"] * 4], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def as_rich(rows: Sequence[Sequence[str]], title: str) -> Table:
    """The table for a terminal."""
    table = Table(title=title)
    for column in ("noise", "method", *COLUMNS.values(), "clean weight"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row, following in itertools.zip_longest(rows, rows[1:]):
        table.add_row(*row, end_section=following is not None and following[0] != row[0])
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has not been run, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="multimnist", help="one whose tasks are all classification")
    parser.add_argument("--data", help="file or folder with its data")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="name or name:option=value,...")
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.4, 0.8])
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, help="default: the benchmark's")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/robustness"), help="folder of the runs")
    chosen = parser.parse_args(arguments)
    console = Console(highlight=False)
    configs = [
        RunConfig(
            chosen.benchmark,
            method,
            options=options,
            noise=noise,
            seed=seed,
            epochs=chosen.epochs,
            batch_size=chosen.batch_size,
            data=chosen.data,
            device=chosen.device,
        )
        for seed, (method, options), noise in itertools.product(
            range(chosen.seeds), map(parse_method, chosen.methods), chosen.noise
        )
    ]
    console.print(f"{len(configs)} runs of {chosen.epochs} epochs, {chosen.jobs} at a time, kept in {chosen.out}")
    started = time.monotonic()
    runs = Parallel(n_jobs=chosen.jobs, return_as="generator_unordered")(
        delayed(one_run)(config, chosen.out) for config in configs
    )
    summaries = []
    for summary in runs:
        summaries.append(summary)
        which = f"{summary['label']:<9} noise {summary['noise']:g} seed {summary['seed']}"
        scores = ", ".join(f"{task} {_percent(score)}" for task, score in summary["scores"].items())
        console.print(f"{len(summaries):>3}/{len(configs)}  {which}: {scores}")
    rows = cells(summaries)
    columns = ["benchmark", "source", "label", "noise", "seed", "epochs", *COLUMNS, "clean_weight", "seconds_per_step"]
    frame = pd.DataFrame(summaries)[columns].sort_values(["noise", "label", "seed"])
    for name, text in (("robustness.csv", frame.to_csv(index=False)), ("robustness.md", as_markdown(rows))):
        with atomic_write(chosen.out / name) as file:
            file.write(text.encode())
    noisy = ", ".join(summaries[0]["noisy_tasks"])
    console.print(as_rich(rows, f"Accuracy in percent; noise = share of wrong labels in {noisy}"))
    spread = (
        "mean ± standard deviation over the seeds" if chosen.seeds > 1 else "one seed: a point more or less is luck"
    )
    console.print(f"Test scores of the last epoch, {spread}. Clean weight: share of the clean tasks in the last epoch.")
    console.print(f"{chosen.out / 'robustness.csv'} has every run. {time.monotonic() - started:.0f} s.", soft_wrap=True)


if __name__ == "__main__":
    main()
