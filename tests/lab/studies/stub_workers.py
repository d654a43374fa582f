"""What a worker of a sweep does in tests: nothing but a summary, or its own death. Importable by worker processes."""

import json
import os
import signal
import time

from filelock import FileLock

from excessmtl.lab.studies.workers import Result
from report_data import made_up


def _log(folder):
    """One more line in a file beside the runs: a count that survives its process."""
    log = folder.parents[3] / "started.txt"
    with log.open("a") as file:
        file.write(f"{folder.relative_to(log.parent)}\n")


def finishes(config, folder):
    _log(folder)
    summary = made_up(config.name, config.noise, config.seed, benchmark=config.benchmark)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary))
    return Result(0.0, summary)


def dies_at_seed_1(config, folder):
    if config.seed == 1:
        _log(folder)
        os.kill(os.getpid(), signal.SIGKILL)
    return finishes(config, folder)


def dies_once_at_seed_1(config, folder):
    if config.seed == 1 and not folder.exists():
        _log(folder)
        folder.mkdir(parents=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return finishes(config, folder)


HELD = []


def holds_a_lock_until_it_dies(config, folder):
    """Seed 0 then waits for more work, the others never end."""
    HELD.append(FileLock(folder.parents[3] / f"worker-{config.seed}.lock").acquire())
    result = finishes(config, folder)
    while config.seed:
        time.sleep(1)
    return result
