"""How time and memory grow with the number of tasks, on a perceptron."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from excessmtl.files import atomic_write
from excessmtl.lab.speed.measure import measure
from excessmtl.lab.speed.networks import perceptron_of_size
from excessmtl.lab.speed.variants import BASELINE, VARIANTS

_METHODS = (BASELINE, "stacked", "uniform", "excess", "paper", "official")
_TASKS = (2, 10, 30, 100, 300, 1000)
_MOST = {"paper": 100, "official": 100}
"""Tasks, for methods that pass the trunk once for each of them."""
_BATCH = 256


def measured(device: torch.device, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """What was measured with each number of tasks."""
    size = 10**4 if quick else 10**6 if device.type == "cuda" else 10**5
    results = []
    for tasks in _TASKS[: 2 if quick else None]:
        network = perceptron_of_size(size, tasks, _BATCH)
        variants = [VARIANTS[name] for name in _METHODS if tasks <= _MOST.get(name, tasks)]
        results.append(asdict(measure(network, variants, device, 0.1 if quick else 2.0)))
        ratios = ", ".join(f"{row['method']} x{row['ratio'][1]:.2f}" for row in results[-1]["rows"])
        say(f"{tasks} tasks: {ratios}")
    return results


def plot(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Milliseconds per step, and on CUDA megabytes, against the number of tasks."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    first = results[0]
    labels = ["ms per step"] if first["rows"][0]["peak_mb"] is None else ["ms per step", "peak MB"]
    figure = Figure(figsize=(4.5 * len(labels), 3.6), layout="constrained")
    for axes, label in zip(figure.subplots(1, len(labels), squeeze=False)[0], labels, strict=True):
        for method in _METHODS:
            rows = [(result["tasks"], row) for result in results for row in result["rows"] if row["method"] == method]
            medians = [row["ms"][1] if label == "ms per step" else row["peak_mb"] for _, row in rows]
            axes.loglog([tasks for tasks, _ in rows], medians, "o-", label=method)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(f"tasks ({first['parameters']:,} shared parameters, batch {first['batch']})")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3, which="both")
    figure.axes[0].legend()
    with atomic_write(path) as file:
        figure.savefig(file, format="svg")
