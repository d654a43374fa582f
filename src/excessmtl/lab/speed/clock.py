"""Timing steps side by side, so that whatever else the machine does hits all of them alike."""

import gc
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from excessmtl.recording.recording import WARM_UP as RECORDED_AFTER
from excessmtl.torch_private import clear_cublas_workspaces

WARM_UP = RECORDED_AFTER + 2
"""Steps before the clock runs: in the first ones kernels are chosen, and balancers make their recordings."""
_FEWEST, _MOST = 5, 100


@dataclass(frozen=True)
class Clock:
    """Time of work on a device, the work itself included, not only its launch.

    On a CPU it is processor time, of all threads: what other programs do at the same time disturbs it less, and with
    one thread on an idle machine it is what a clock on the wall shows. Elsewhere it is the clock on the wall.
    """

    device: torch.device

    def seconds(self, step: Callable[[], object], times: int = 1) -> float:
        """Per step, over `times` of them."""
        now = time.process_time if self.device.type == "cpu" else time.perf_counter
        self._wait()
        start = now()
        for _ in range(times):
            step()
        self._wait()
        return (now() - start) / times

    def side_by_side(self, steps: Mapping[str, Callable[[], object]], budget: float) -> dict[str, list[float]]:
        """Milliseconds per step: rounds in which each step has its turn, in random order, for `budget` seconds.

        A turn is as many steps as fill a few hundredths of a second, so that the clock and the waiting do not count.
        """
        least = 0.05 if self.device.type == "cuda" else 0.02
        repeats = {}
        for name, step in steps.items():
            self.seconds(step, WARM_UP)
            repeats[name] = max(1, round(least / max(self.seconds(step), 1e-6)))
        times: dict[str, list[float]] = {name: [] for name in steps}
        order, shuffle, end = list(steps), random.Random(0).shuffle, time.perf_counter() + budget
        gc.collect()
        for done in range(_MOST):
            if done >= _FEWEST and time.perf_counter() > end:
                break
            shuffle(order)
            for name in order:
                times[name].append(1e3 * self.seconds(steps[name], repeats[name]))
        return times

    def peak_mb(self, make_step: Callable[[], Callable[[], object]]) -> float | None:
        """Most megabytes allocated at once in a step, with all that its making has allocated before (CUDA only)."""
        if self.device.type != "cuda":
            return None
        gc.collect()
        clear_cublas_workspaces()  # those of the streams that recordings were made on are not this step's
        torch.cuda.empty_cache()
        step = make_step()
        self.seconds(step, WARM_UP)
        torch.cuda.reset_peak_memory_stats(self.device)
        step()
        return round(torch.cuda.max_memory_allocated(self.device) / 2**20, 1)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
