"""A run on disk: config.yaml, metrics.csv, steps.npz, summary.json and checkpoint/, each written whole; and where."""

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from excessmtl.files import atomic_write, is_plain_file, unfinished, write_whole
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.record import OF_THE_MACHINE, RunRecord
from excessmtl.lab.runs.summary import Row, columns_of, read_json
from excessmtl.lab.schema import shortened

SECTIONS = "sections.json"
"""In a folder of runs: the names of the packages whose sections their report shows."""
_LOCK = ".lock"
_LONGEST_NAME = 60
_IN_THE_PATH = ("benchmark", "method", "options", "label", "noise", "seed")
_OF_THE_DEVICE = ("device", "devices")
_WHY_NOT_LONGER = "; only more epochs are possible, and only with a constant learning rate"


def file_in(root: Path, folder: str, name: str) -> Path | None:
    """A file of a run below `root`; None where it is missing, no plain file, or a link that leads out of `root`."""
    path = root / folder / name
    return path if is_plain_file(path, root) else None


class RunFolder:
    """Where a run keeps what it knows. One process at a time trains in it, from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = FileLock(path / _LOCK, thread_local=False)

    @property
    def checkpoints(self) -> Path:
        """The folder of the latest checkpoint."""
        return self.path / "checkpoint"

    @property
    def summary(self) -> dict[str, Any] | None:
        """summary.json of a finished run, or None."""
        path = self.path / "summary.json"
        if not os.path.lexists(path):
            return None
        summary = read_json(path)
        columns_of(summary, str(path))
        return dict(summary)

    @property
    def record(self) -> RunRecord | None:
        """Of the run in the folder; None where there is no run."""
        path = self.path / "config.yaml"
        return RunRecord.read(path) if path.exists() else None

    def open(self, record: RunRecord, resume: bool, wait: float = 0.0) -> RunRecord:
        """Claim the folder for the run of this record; refuses one that belongs to another run.

        Gives the record of the run in the folder, which may have been begun by other code. `wait`: seconds to wait for
        a process that is still training in it.
        """
        self._refuse_others(resume)
        self.claim(f"another process is training in {self.path}; wait for it, or choose another --out", wait)
        try:
            self._refuse_others(resume)
            old = self.record
            if old is None:
                write_whole(self.path / "config.yaml", record.to_yaml())
            else:
                record = self._go_on(old, record)
            for path in [*unfinished(self.path), *unfinished(self.checkpoints)]:
                path.unlink(missing_ok=True)
        except BaseException:
            self.close()
            raise
        return record

    def claim(self, refusal: str, wait: float = 0.0) -> None:
        """Lock the folder, which is made if need be."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self.lock.acquire(timeout=wait)
        except Timeout:
            raise ValueError(refusal) from None

    def close(self) -> None:
        """Let others have the folder."""
        if self.lock.is_locked:
            with suppress(OSError):  # some systems do not let go of a file that is open
                (self.path / _LOCK).unlink()
            self.lock.release()

    def _refuse_others(self, resume: bool) -> None:
        if (self.path / "config.yaml").exists():
            if not resume:
                raise ValueError(
                    f"out={self.path} already holds a run; pass --resume to go on with it, or another --out"
                )
        elif self.path.exists():
            known = [*unfinished(self.path), self.path / _LOCK]
            if not self.path.is_dir() or any(path not in known for path in self.path.iterdir()):
                raise ValueError(f"out={self.path} exists and is not a run; choose an empty or new folder")

    def _go_on(self, old: RunRecord, new: RunRecord) -> RunRecord:
        epochs = new.config["epochs"]
        longer = epochs > old.config["epochs"] and new.config["schedule"] == "constant"
        refuse_another(old.plain, new.plain, self.path, but=("code", *(["epochs"] if longer else [])))
        if longer:
            from excessmtl.lab.runs import checkpoint

            checkpoint.load(self.checkpoints)  # where it cannot be read, what is finished stays
            (self.path / "summary.json").unlink(missing_ok=True)
        record = replace(old, config={**old.config, "epochs": max(epochs, old.config["epochs"])})
        if not (self.path / "summary.json").exists() and new.code not in old.code:
            record = replace(record, code=f"{old.code} and {new.code}")
        if record != old:
            write_whole(self.path / "config.yaml", record.to_yaml())
        return record

    def write_metrics(self, rows: Sequence[Row]) -> None:
        """One row per epoch so far."""
        text = io.StringIO()
        # Epochs of an earlier version may have fewer metrics than those that follow them.
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.path / "metrics.csv", text.getvalue().encode())

    def write_steps(self, steps: Mapping[str, np.ndarray], tasks: Sequence[str]) -> None:
        """Weights, losses and excess risks, one row per step and one column per task."""
        with atomic_write(self.path / "steps.npz") as file:
            np.savez_compressed(file, tasks=np.array(tasks), **steps)  # type: ignore[arg-type]

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """The end of the run."""
        write_whole(self.path / "summary.json", json.dumps(summary, indent=2).encode() + b"\n")


def refuse_another(old: Mapping[str, Any], new: Mapping[str, Any], path: Path, but: Sequence[str]) -> None:
    """Refuses to go on with the run in `path` as another one; what its record does not say cannot differ."""
    for name, value in new.items():
        before = old.get(name)
        if name not in (*OF_THE_MACHINE, *but) and name in old and before != value:
            raise ValueError(
                f"{name} is {value!r}, but the run in {path} was started with {shortened(before, 400)}"
                f"{_WHY_NOT_LONGER if name == 'epochs' else ''}"
            )


def folder_of(config: RunConfig) -> Path:
    """Where a run lies in the folder of a sweep: `benchmark/method/noise-0.4/seed-0`.

    Two configurations share it only if they compute the same.

    What these words do not say (the options of the method, a recipe that is not the benchmark's own) is in a short
    hash behind them, so that a changed study makes new runs next to the old ones.
    """
    noise = repr(float(config.noise)).removesuffix(".0")  # all digits, no more: 0.4, 0, 0.1234567
    return Path(_benchmark(config), _method(config), f"noise-{noise}", f"seed-{config.seed}")


def _benchmark(config: RunConfig) -> str:
    plain = config.to_dict()
    # Compared with a bare configuration, so that a field added to RunConfig later moves no existing run.
    bare = RunConfig(config.benchmark, config.method).to_dict()
    names = [field.name for field in fields(config) if field.name not in (*_IN_THE_PATH, *_OF_THE_DEVICE)]
    chosen = {name: plain[name] for name in names if plain[name] != bare[name]}
    # A file or an import path has characters that do not belong into the name of a folder.
    words = re.sub(r"[^A-Za-z0-9_.=-]+", "-", config.benchmark)[-_LONGEST_NAME:].strip("-.")
    hashed = chosen if words == config.benchmark else {**chosen, "benchmark": config.benchmark}
    return f"{words}-{_digest(hashed)}" if hashed else words


def _method(config: RunConfig) -> str:
    if config.name == config.method and not config.options:
        return config.method
    words = re.sub(r"[^A-Za-z0-9_.=]+", "-", config.name)[:_LONGEST_NAME].strip("-.")
    hashed = {"method": config.method, "options": dict(config.options), "label": config.name}
    return f"{words}-{_digest(hashed)}".lstrip("-")


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=repr).encode()).hexdigest()[:8]
