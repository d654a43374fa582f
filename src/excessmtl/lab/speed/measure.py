"""A network measured with several variants: milliseconds, ratio to the first variant, peak memory."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity

from excessmtl.lab.compare.table import Format, Table
from excessmtl.lab.speed.clock import WARM_UP, Clock
from excessmtl.lab.speed.networks import Network
from excessmtl.lab.speed.variants import Variant

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
    rows = [
        Row(name, _quartiles(own), ratios(own, times[baseline]), peak, len(own))
        for (name, own), peak in zip(times.items(), peaks, strict=True)
    ]
    return Result(network.name, network.summary, network.tasks, network.batch, parameters, rows)


def _peak(variant: Variant, network: Network, clock: Clock) -> float | None:
    return clock.peak_mb(lambda: variant.step(network.problem(clock.device)))


def costliest_operators(network: Network, variant: Variant, device: torch.device) -> str:
    """A table of the operators that take longest by themselves, over ten steps."""
    step, clock = variant.step(network.problem(device)), Clock(device)
    clock.seconds(step, WARM_UP)
    activities, key = [ProfilerActivity.CPU], "self_cpu_time_total"
    if device.type == "cuda":
        activities, key = [*activities, ProfilerActivity.CUDA], "self_cuda_time_total"
    with torch.profiler.profile(activities=activities) as profiler:
        clock.seconds(step, 10)
    table: str = profiler.key_averages().table(sort_by=key, row_limit=15, max_name_column_width=50)
    return table


def ratios(times: Sequence[float], baseline: Sequence[float]) -> Quartiles:
    """Quartiles of the ratio, round by round."""
    return _quartiles([mine / other for mine, other in zip(times, baseline, strict=True)])


def _quartiles(values: Sequence[float]) -> Quartiles:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return round(low, 4), round(median, 4), round(high, 4)


def _range(quartiles: Quartiles) -> str:
    return f"{quartiles[0]:.2f} to {quartiles[2]:.2f}"
