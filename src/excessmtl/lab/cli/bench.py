"""`excessmtl bench`: what a step costs beside plain PyTorch."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer

from excessmtl.files import check_replaceable
from excessmtl.lab.cli.app import console, names_in


def bench(
    networks: Annotated[str, typer.Option(help="Comma-separated. Default: those usual for the device.")] = "",
    methods: Annotated[str, typer.Option(help="Comma-separated, or all. Default: ExcessMTL and its peers.")] = "",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Annotated[Path | None, typer.Option(help="File for the numbers, the machine and the versions.")] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="Instead: growth with the number of tasks; plotted beside --json.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A rough look of a few seconds, not a measurement.")] = False,
    seconds: Annotated[float, typer.Option(help="Time to measure each network.")] = 20.0,
    threads: Annotated[int, typer.Option(help="Number of CPU threads.")] = 1,
) -> None:
    """Measure time (and on CUDA memory) of forward, backward and weighting, beside plain PyTorch and peers."""
    from excessmtl.lab.speed import growth as curves
    from excessmtl.lab.speed.measure import measure, write_record
    from excessmtl.lab.speed.networks import NETWORKS, USUAL
    from excessmtl.lab.speed.variants import chosen

    if json is not None:
        check_replaceable(json)
    if device not in USUAL:
        raise ValueError(f"device must be cpu or cuda, found {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is cuda, but torch finds no such device; use --device cpu")
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, found {seconds}")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, found {threads}")
    names = names_in(networks) or USUAL[device]
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        raise ValueError(f"networks has {unknown[0]!r}; choose from {', '.join(NETWORKS)}")
    variants = chosen(names_in(methods))
    torch.set_num_threads(threads)
    if growth:
        if json is None:
            raise ValueError("growth needs --json FILE; the plot is written beside it")
        measured = curves.measured(torch.device(device), quick, console.print)
        write_record(json, device, {"growth": measured})
        curves.plot(measured, json.with_suffix(".svg"))
        console.print(f"{json}\n{json.with_suffix('.svg')}", soft_wrap=True)
        return
    results = []
    for network in (NETWORKS[name] for name in names):
        result = measure(network, variants, torch.device(device), 0.5 if quick else seconds)
        results.append(asdict(result))
        console.print(result.table().as_rich())
        if json is not None:  # now, so that what is measured is kept if the rest is not
            write_record(json, device, {"results": results})
