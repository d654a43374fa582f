"""A network measured with several variants: milliseconds, ratio to plain PyTorch, peak memory."""

import gc
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from excessmtl.lab.speed.clock import Clock
from excessmtl.lab.speed.networks import Network
from excessmtl.lab.speed.variants import BASELINE, REPLAYED_BASELINE, Variant
from excessmtl.torch_private import clear_cublas_workspaces

Quartiles = tuple[float, float, float]


@dataclass(frozen=True)
class Row:
    """One variant on one network."""

    method: str
    ms: Quartiles
    ratio: Quartiles
    """To plain PyTorch in the same round."""
    peak_mb: float | None
    """None on the CPU, and for recordings, into which the allocator does not see."""
    rounds: int
    to_replayed: Quartiles | None = None
    """Of a recording: the ratio to plain PyTorch recorded too, where that was measured."""


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

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(network: Network, variants: Sequence[Variant], device: torch.device, seconds: float) -> Result:
    """Time all variants side by side on copies of the network, then the memory of each alone."""
    try:
        return _measure(network, variants, device, seconds)
    except torch.OutOfMemoryError:
        names = ", ".join(variant.name for variant in variants)
        raise ValueError(
            f"network {network.name} with methods {names} does not fit into the memory of {device}; "
            "choose fewer methods"
        ) from None


def _measure(network: Network, variants: Sequence[Variant], device: torch.device, seconds: float) -> Result:
    clock = Clock(device)
    problems = {variant.name: network.problem(device) for variant in variants}
    steps = {variant.name: variant.step(problems[variant.name]) for variant in variants}
    times = clock.side_by_side(steps, seconds)
    parameters = sum(parameter.numel() for parameter in problems[BASELINE].trunk.parameters())
    del problems, steps
    rows = []
    for variant in variants:
        mine = times[variant.name]
        to_replayed = None
        if variant.replayed and REPLAYED_BASELINE in times:
            to_replayed = _ratios(mine, times[REPLAYED_BASELINE])
        peak = _peak(network, variant, clock)
        ratios = _ratios(mine, times[BASELINE])
        rows.append(Row(variant.name, _quartiles(mine), ratios, peak, len(mine), to_replayed))
    return Result(network.name, network.summary, network.tasks, network.batch, parameters, rows)


def _peak(network: Network, variant: Variant, clock: Clock) -> float | None:
    if clock.device.type != "cuda" or variant.replayed:
        return None
    gc.collect()
    clear_cublas_workspaces()  # those of the streams that recordings were made on are not this variant's
    torch.cuda.empty_cache()
    peak = clock.peak_memory(variant.step(network.problem(clock.device)))
    return None if peak is None else round(peak / 2**20, 1)


def _ratios(times: Sequence[float], baseline: Sequence[float]) -> Quartiles:
    return _quartiles([one / other for one, other in zip(times, baseline, strict=True)])


def _quartiles(values: Sequence[float]) -> Quartiles:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return round(low, 4), round(median, 4), round(high, 4)
