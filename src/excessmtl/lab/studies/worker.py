"""One run of a sweep, in a worker process."""

import logging
import os
import signal
import threading
import time
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import train

_PATIENCE = 60.0
"""Seconds for the worker of a killed sweep to notice and let go of the run's folder."""
_LOOK_EVERY = 0.5
"""Seconds."""


@dataclass(frozen=True)
class Result:
    """What came of a run: its summary, or why there is none, in one line and at length."""

    seconds: float
    summary: dict[str, Any] | None = None
    reason: str = ""
    details: str = ""
    died: bool = False
    """Whether the worker has died, so that the run may be tried again."""


@cache
def end_with(parent: int) -> None:
    """Make this process end within a second of its parent, whatever either of them is doing.

    A killed sweep ends nobody: its workers would keep their memory, go on writing in folders that the next sweep works
    in, and wait for ever once they are idle.
    """

    def watch() -> None:
        while os.getppid() == parent:  # a process whose parent has died is given another one
            time.sleep(_LOOK_EVERY)
        os._exit(1)  # nobody is left to be told

    if os.name == "posix":  # elsewhere a process keeps the number of its dead parent
        threading.Thread(target=watch, name="end with the sweep", daemon=True).start()


def run(config: RunConfig, folder: Path) -> Result:
    """Run, or go on with, one configuration; whatever it raises is sent back, not raised."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the sweep ends its workers
    end_with(os.getppid())  # of a cluster too, which starts its workers itself
    torch.set_num_threads(1)  # several runs share the cores
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    start = time.monotonic()
    try:
        summary = train(config, folder, resume=True, wait=_PATIENCE)
        return Result(time.monotonic() - start, summary)
    except Exception as error:
        message = " ".join(str(error).split())
        reason = message if message and isinstance(error, ValueError) else f"{type(error).__name__}: {message}"
        return Result(time.monotonic() - start, None, reason, traceback.format_exc())
