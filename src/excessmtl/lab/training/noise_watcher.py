"""Diagnoses a run after every epoch, and warns once when a task turns noisy."""

from pathlib import Path

import torch

from excessmtl.diagnosis import Report, WarnOnce
from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.training.held_out import diagnose_run, trained
from excessmtl.lab.training.progress import Watcher


class NoiseWatcher(Watcher):
    """`lab.train(..., out=RUN, watcher=NoiseWatcher(RUN))`; costs a pass over the validation split per epoch.

    Args:
        run: the folder that is given as `out`.
        benchmark: the object that is trained on, where it is not loaded by a name.
    """

    def __init__(self, run: Path | str, benchmark: Benchmark | None = None) -> None:
        self.run, self.benchmark = Path(run), benchmark
        self.warn = WarnOnce()
        self.report: Report | None = None
        """Of the last epoch."""

    def on_epoch(self, epoch: int, row: dict[str, float]) -> None:
        """From the checkpoint, which was written before; the run's random numbers stay as they are."""
        with torch.random.fork_rng(devices=[]):
            if self.benchmark is None:
                _, self.benchmark, _ = trained(self.run)
            self.report = diagnose_run(self.run, self.benchmark)
        self.warn(self.report)
