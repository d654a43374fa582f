"""`excessmtl bench`: what a step costs beside plain PyTorch."""

from pathlib import Path
from typing import Annotated

import typer

from excessmtl.files import check_replaceable
from excessmtl.lab.cli.terminal import console, names_in


def bench(
    networks: Annotated[str, typer.Option(help="Comma-separated; default: those usual for the device.")] = "",
    methods: Annotated[str, typer.Option(help="Comma-separated, or all; default: ExcessMTL and its peers.")] = "",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Annotated[Path | None, typer.Option(help="File for the numbers, the machine and the versions.")] = None,
    growth: Annotated[
        bool, typer.Option(help="Instead: growth with tasks, parameters and batch, and a plot beside the JSON.")
    ] = False,
    quick: Annotated[bool, typer.Option(help="A few seconds in all: a look, not a measurement.")] = False,
    seconds: Annotated[float, typer.Option(help="Time for the rounds of each network.")] = 20.0,
    threads: Annotated[int, typer.Option(help="Of torch on the CPU.")] = 1,
    profile: Annotated[str | None, typer.Option(help="Instead: the costliest operators of this method.")] = None,
) -> None:
    """Time (and on CUDA memory) of forward, backward and weighting, side by side with plain PyTorch and peers."""
    from excessmtl.lab.speed import command

    if json is not None:
        check_replaceable(json)
    settings = command.Settings.checked(device, names_in(networks), names_in(methods), quick, seconds, threads)
    if profile is not None:
        command.profile(settings, profile, console)
    elif growth:
        command.growth(settings, json, console)
    else:
        command.table(settings, json, console)
