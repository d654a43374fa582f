"""Measurements of our own beside `excessmtl bench`: python -m excessmtl.lab.speed NAME [--json FILE]."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

import excessmtl
from excessmtl.lab.speed.ablation import ablation as measured_ablation
from excessmtl.lab.speed.measure import measure, write_record
from excessmtl.lab.speed.networks import NETWORKS
from excessmtl.lab.speed.variants import VARIANTS, chosen

LIMITS = {
    "mlp512-40": {"uniform": 1.25, "excess": 1.3},
    "conv-5": {"uniform": 1.3, "excess": 1.35, "paper": 4.0},
    "mlp-7": {"excess": 2.7, "excess-robust": 3.8},
}
"""Ratios to plain PyTorch, with wide margins."""
Json = Annotated[Path | None, typer.Option(help="File for the numbers, the machine and the versions.")]
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _on_one_thread() -> None:
    torch.set_num_threads(1)


@app.command()
def check(seconds: float = 1.5) -> None:
    """Whether a step has become much slower than plain PyTorch (make perf-check): then the exit code is 1."""
    too_slow = 0
    for network, limits in LIMITS.items():
        for row in measure(NETWORKS[network], chosen(list(limits)), torch.device("cpu"), seconds).rows[1:]:
            ratio, limit = row.ratio[1], limits[row.method]
            too_slow += ratio > limit
            verdict = "ok" if ratio <= limit else "TOO SLOW"
            print(f"{network:10} {row.method:8} x{ratio:.2f} of plain PyTorch (limit x{limit:.2f})  {verdict}")
    raise typer.Exit(int(too_slow > 0))


@app.command()
def ablation(device: str = "cpu", seconds: float = 3.0, json: Json = None) -> None:
    """What each fast way of computing gradients buys: a step without it, over a step with all of them."""
    rows = measured_ablation(torch.device(device), seconds, print)
    if json is not None:
        write_record(json, device, {"rows": rows})


@app.command()
def methods(seconds: float = 60.0, json: Json = None) -> None:
    """What a step of a ResNet-18 with batches of 8 costs with every method, relative to uniform; a few minutes."""
    variants = [VARIANTS[name] for name in dict.fromkeys(["uniform", *excessmtl.list_methods()]) if name in VARIANTS]
    rows = measure(replace(NETWORKS["resnet18-4"], batch=8), variants, torch.device("cpu"), seconds).rows
    ratios = {row.method: round(row.ratio[1], 3) for row in rows}
    print(ratios)
    if json is not None:
        write_record(json, "cpu", {"rounds": rows[0].rounds, "ratio": ratios})


if __name__ == "__main__":
    app()
