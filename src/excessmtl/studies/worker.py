"""One run of a sweep, in a process of its own."""

import logging
import os
import signal
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from excessmtl.step import Step
from excessmtl.training.config import RunConfig
from excessmtl.training.loop import train
from excessmtl.training.progress import Silent


@dataclass(frozen=True)
class Result:
    """What a worker sends back: the summary of the run with this number, or why there is none."""

    number: int
    summary: dict[str, Any] | None = None
    reason: str = ""
    details: str = ""


class _EndsWithSweep(Silent):
    """A worker whose sweep has been killed stops: the next sweep may already be at the same run."""

    def __init__(self) -> None:
        self.parent = os.getppid()

    def on_step(self, epoch: int, step: int, steps: int, result: Step) -> None:
        """Look for the parent."""
        if os.getppid() != self.parent:
            raise RuntimeError("the sweep has ended")


def run(number: int, config: RunConfig, folder: Path) -> Result:
    """Run, or go on with, one configuration; whatever it raises is sent back, not raised."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the sweep ends its workers
    torch.set_num_threads(1)  # several runs share the cores
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    try:
        return Result(number, train(config, folder, resume=True, watcher=_EndsWithSweep()))
    except Exception as error:
        message = " ".join(str(error).split())
        reason = message if message and isinstance(error, ValueError) else f"{type(error).__name__}: {message}"
        return Result(number, None, reason, traceback.format_exc())
