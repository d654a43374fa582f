"""What a worker of a sweep does in tests: nothing but a summary, or its own death. Importable by worker processes."""

import json
import os
import signal

from excessmtl.sweeps.worker import Result


def _log(folder):
    """One more line in a file beside the runs: a count that survives its process."""
    log = folder.parents[3] / "started.txt"
    with log.open("a") as file:
        file.write(f"{folder.relative_to(log.parent)}\n")


def finishes(number, config, folder, note):
    _log(folder)
    summary = {"benchmark": config.benchmark, "label": config.name, "noise": config.noise, "seed": config.seed}
    summary["scores"] = {"task": 0.5}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary))
    return Result(number, 0.0, summary)


def dies_at_seed_1(number, config, folder, note):
    if config.seed == 1:
        _log(folder)
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return finishes(number, config, folder, note)


def dies_once_at_seed_1(number, config, folder, note):
    if config.seed == 1 and not folder.exists():
        _log(folder)
        note.touch()
        folder.mkdir(parents=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return finishes(number, config, folder, note)
