"""Where the time of a step goes, by torch's profiler."""

import torch
from torch.profiler import ProfilerActivity

from excessmtl.lab.speed.clock import WARM_UP, Clock
from excessmtl.lab.speed.networks import Network
from excessmtl.lab.speed.variants import Variant

_STEPS = 10


def costliest(network: Network, variant: Variant, device: torch.device, rows: int = 15) -> str:
    """A table of the operators that take longest by themselves, over ten steps."""
    step, clock = variant.step(network.problem(device)), Clock(device)
    clock.seconds(step, WARM_UP)
    activities, key = [ProfilerActivity.CPU], "self_cpu_time_total"
    if device.type == "cuda":
        activities, key = [*activities, ProfilerActivity.CUDA], "self_cuda_time_total"
    with torch.profiler.profile(activities=activities) as profiler:
        clock.seconds(step, _STEPS)
    table: str = profiler.key_averages().table(sort_by=key, row_limit=rows, max_name_column_width=50)
    return table
