"""How time and memory grow with the number of tasks, of shared parameters and of samples, on a perceptron."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from excessmtl.files import atomic_write
from excessmtl.lab.speed.measure import measure
from excessmtl.lab.speed.networks import perceptron_of_size
from excessmtl.lab.speed.variants import BASELINE, VARIANTS

_METHODS = (BASELINE, "uniform", "excess", "paper", "official")
_AXES = {
    "tasks": (2, 4, 8, 16, 32, 64, 128),
    "shared parameters": (10**5, 10**6, 10**7, 10**8),
    "batch": (16, 64, 256, 1024, 4096),
}


def measured(device: torch.device, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """For each quantity that grows: its values, and what was measured there."""
    size = 10**4 if quick else 10**6 if device.type == "cuda" else 10**5
    usual = {"tasks": 10, "shared parameters": size, "batch": 256}
    curves = []
    for axis, every in _AXES.items():
        fewer = device.type == "cpu" and axis != "tasks"  # a backward pass through 1e8 parameters takes seconds there
        values, results = every[: 2 if quick else -1 if fewer else None], []
        for value in values:
            sizes = {**usual, axis: value}
            network = perceptron_of_size(sizes["shared parameters"], sizes["tasks"], sizes["batch"])
            variants = [VARIANTS[name] for name in _METHODS]
            results.append(asdict(measure(network, variants, device, 0.1 if quick else 2.0)))
            ratios = ", ".join(f"{row['method']} x{row['ratio'][1]:.2f}" for row in results[-1]["rows"])
            say(f"{axis} {value}: {ratios}")
        fixed = {name: size for name, size in usual.items() if name != axis}
        curves.append({"axis": axis, "values": values, "fixed": fixed, "results": results})
    return curves


def plot(curves: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Milliseconds per step, and on CUDA megabytes, against each quantity."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    memory = curves[0]["results"][0]["rows"][0]["peak_mb"] is not None
    figure = Figure(figsize=(4 * len(curves), 7 if memory else 3.6), layout="constrained")
    grid = figure.subplots(2 if memory else 1, len(curves), squeeze=False)
    for column, curve in enumerate(curves):
        fixed = ", ".join(f"{name} {value:,}" for name, value in curve["fixed"].items())
        for row, label in enumerate(("ms per step", "peak MB")[: len(grid)]):
            axes_ = grid[row][column]
            for index in range(len(_METHODS)):
                rows = [result["rows"][index] for result in curve["results"]]
                medians = [own["peak_mb"] if row else own["ms"][1] for own in rows]
                axes_.loglog(curve["values"], medians, "o-")
            axes_.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes_.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
            axes_.yaxis.set_minor_formatter(NullFormatter())
            axes_.set_xlabel(f"{curve['axis']} ({fixed})")
            axes_.set_ylabel(label)
            axes_.grid(alpha=0.3, which="both")
    grid[0][0].legend(_METHODS)
    with atomic_write(path) as file:
        figure.savefig(file, format="svg")
