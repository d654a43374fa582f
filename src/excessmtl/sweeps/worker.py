"""One run of a sweep, in a process of its own."""

import logging
import os
import signal
import threading
import time
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
    seconds: float
    summary: dict[str, Any] | None = None
    reason: str = ""
    details: str = ""


class _EndsWithSweep(Silent):
    """A worker whose sweep has been killed stops: the next sweep may already be at the same run.

    The parent tells at once. A worker that was still starting up at that time never knew its parent; to that one the
    next sweep tells it, by clearing away the notes.
    """

    def __init__(self, note: Path) -> None:
        self.note, self.parent = note, os.getppid()

    def on_step(self, epoch: int, step: int, steps: int, result: Step) -> None:
        """Look for both."""
        if os.getppid() != self.parent or not self.note.exists():
            os._exit(1)  # nobody is left to be told


def run(number: int, config: RunConfig, folder: Path, note: Path) -> Result:
    """Run, or go on with, one configuration; whatever it raises is sent back, not raised.

    `note`: a file that is there while the run is under way; that of a worker that has died stays.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the sweep ends its workers
    torch.set_num_threads(1)  # several runs share the cores
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    note.touch()
    start = time.monotonic()
    try:
        summary = train(config, folder, resume=True, watcher=_EndsWithSweep(note))
        return Result(number, time.monotonic() - start, summary)
    except Exception as error:
        message = " ".join(str(error).split())
        reason = message if message and isinstance(error, ValueError) else f"{type(error).__name__}: {message}"
        return Result(number, time.monotonic() - start, None, reason, traceback.format_exc())
    finally:
        note.unlink(missing_ok=True)
