"""The three things `excessmtl bench` does: the table, the growth curves, a profile."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch
from rich.console import Console
from torch.profiler import ProfilerActivity

from excessmtl.lab.speed import growth as curves
from excessmtl.lab.speed.clock import WARM_UP, Clock
from excessmtl.lab.speed.measure import measure
from excessmtl.lab.speed.networks import NETWORKS, USUAL, Network
from excessmtl.lab.speed.record import write_record
from excessmtl.lab.speed.variants import Variant, chosen


@dataclass(frozen=True)
class Settings:
    """What to measure, and where."""

    device: torch.device
    networks: Sequence[Network]
    variants: Sequence[Variant]
    seconds: float
    quick: bool

    @classmethod
    def checked(
        cls, device: str, networks: Sequence[str], methods: Sequence[str], quick: bool, seconds: float, threads: int
    ) -> Self:
        """From the words of the command line; a ValueError says what is wrong."""
        if device not in USUAL:
            raise ValueError(f"device must be cpu or cuda, found {device!r}")
        if device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is cuda, but torch finds no such device; use --device cpu")
        if not seconds > 0:
            raise ValueError(f"seconds must be positive, found {seconds}")
        if threads < 1:
            raise ValueError(f"threads must be at least 1, found {threads}")
        unknown = [name for name in networks if name not in NETWORKS]
        if unknown:
            raise ValueError(f"networks has {unknown[0]!r}; choose from {', '.join(NETWORKS)}")
        torch.set_num_threads(threads)
        chosen_networks = [NETWORKS[name] for name in networks or USUAL[device]]
        return cls(torch.device(device), chosen_networks, chosen(methods, device), 0.5 if quick else seconds, quick)


def table(settings: Settings, path: Path | None, console: Console) -> None:
    """Every network with every variant."""
    results = []
    for network in settings.networks:
        result = measure(network, settings.variants, settings.device, settings.seconds)
        results.append(asdict(result))
        console.print(result.table().as_rich())
        if path is not None:  # now, so that what is measured is kept if the rest is not
            write_record(path, settings.device.type, {"results": results})


def growth(settings: Settings, path: Path | None, console: Console) -> None:
    """How the cost grows with the number of tasks, of parameters and of samples."""
    if path is None:
        raise ValueError("growth needs --json FILE; the plot is written beside it")
    measured = curves.measured(settings.device, settings.quick, lambda line: console.print(line))
    write_record(path, settings.device.type, {"growth": measured})
    curves.plot(measured, path.with_suffix(".svg"))
    console.print(f"{path}\n{path.with_suffix('.svg')}", soft_wrap=True)


def profile(settings: Settings, method: str, console: Console) -> None:
    """The costliest operators of one method beside those of plain PyTorch."""
    variant = chosen([method], settings.device.type)[-1]
    for network in settings.networks:
        console.print(f"{network.name} ({network.summary}, {network.tasks} tasks), {variant.summary}")
        console.print(_costliest(network, variant, settings.device), soft_wrap=True, markup=False)


def _costliest(network: Network, variant: Variant, device: torch.device) -> str:
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
