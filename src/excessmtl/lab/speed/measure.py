"""A network measured with several variants: milliseconds, ratio to the first variant, peak memory; a file of both."""

import json
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from excessmtl.files import write_whole
from excessmtl.lab.compare.table import Format, Table
from excessmtl.lab.speed.clock import Clock
from excessmtl.lab.speed.networks import Network
from excessmtl.lab.speed.variants import Variant

_PACKAGES = ("numpy", "lightning", "torchjd")
Quartiles = tuple[float, float, float]
_FORMATS: dict[str, Format] = {"ms": ".2f", "ratio": "x{:.2f}".format, "peak MB": ",.0f"}


@dataclass(frozen=True)
class Row:
    """One variant on one network."""

    method: str
    ms: Quartiles
    ratio: Quartiles
    """To the first variant, plain PyTorch as a rule, in the same round."""
    peak_mb: float | None
    """None on the CPU."""
    rounds: int


@dataclass(frozen=True)
class Result:
    """One network."""

    network: str
    summary: str
    tasks: int
    batch: int
    parameters: int
    """Shared ones."""
    rows: list[Row]

    def table(self) -> Table:
        """A line per variant; columns that no variant has a number for are left out."""
        title = (
            f"{self.network}: {self.summary}, {self.parameters:,} shared parameters, "
            f"{self.tasks} tasks, batch {self.batch}"
        )
        records = [
            {
                "method": row.method,
                "ms": row.ms[1],
                "ms, quartiles": _range(row.ms),
                "ratio": row.ratio[1],
                "ratio, quartiles": _range(row.ratio),
                "peak MB": row.peak_mb,
            }
            for row in self.rows
        ]
        shown = [column for column in records[0] if any(record[column] is not None for record in records)]
        return Table.of_records(records, {column: _FORMATS.get(column, str) for column in shown}, title)


def measure(network: Network, variants: Sequence[Variant], device: torch.device, seconds: float) -> Result:
    """Time all variants side by side on copies of the network, then the memory of each alone."""
    clock, baseline = Clock(device), variants[0].name
    try:
        problems = {variant.name: network.problem(device) for variant in variants}
        parameters = sum(parameter.numel() for parameter in problems[baseline].trunk.parameters())
        times = clock.side_by_side({own.name: own.step(problems[own.name]) for own in variants}, seconds)
        del problems
        peaks = [_peak(variant, network, clock) for variant in variants]
    except torch.OutOfMemoryError:
        names = ", ".join(variant.name for variant in variants)
        raise ValueError(
            f"network {network.name} with methods {names} does not fit into the memory of {device}; "
            "choose fewer methods"
        ) from None
    rows = []
    for (name, own), peak in zip(times.items(), peaks, strict=True):
        ratios = [mine / other for mine, other in zip(own, times[baseline], strict=True)]
        rows.append(Row(name, _quartiles(own), _quartiles(ratios), peak, len(own)))
    return Result(network.name, network.summary, network.tasks, network.batch, parameters, rows)


def _peak(variant: Variant, network: Network, clock: Clock) -> float | None:
    return clock.peak_mb(lambda: variant.step(network.problem(clock.device)))


def _quartiles(values: Sequence[float]) -> Quartiles:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return round(low, 4), round(median, 4), round(high, 4)


def _range(quartiles: Quartiles) -> str:
    return f"{quartiles[0]:.2f} to {quartiles[2]:.2f}"


def write_record(path: Path, device: str, content: Mapping[str, Any]) -> None:
    """What was measured, beside the command and the machine that it was measured with."""
    name, *arguments = sys.argv
    program = ["python", "-m", "excessmtl.lab.speed"] if Path(name).parent.name == "speed" else ["excessmtl"]
    record = {"command": shlex.join([*program, *arguments]), "device": device, "machine": _machine(device), **content}
    write_whole(path, (json.dumps(record, indent=1) + "\n").encode())


def _machine(device: str) -> dict[str, str | int]:
    """Processor, cores, accelerator and versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    facts: dict[str, str | int] = {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device == "cuda":
        facts["gpu"], facts["cuda"] = torch.cuda.get_device_name(), str(torch.version.cuda)
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            facts[package] = version(package)
    return facts
