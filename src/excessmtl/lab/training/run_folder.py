"""A run on disk: config.yaml, metrics.csv, steps.npz, summary.json and checkpoint/, each written whole."""

import csv
import io
import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from filelock import FileLock, Timeout

from excessmtl.files import atomic_write, read_text, unfinished, write_whole
from excessmtl.lab.training.config import Resolved, read_config
from excessmtl.plain import FLAG, NAMES, NUMBER, SCORE, TEXT, WHOLE, Kind, by_task, mapping, perhaps, shortened

Row = dict[str, float]
_OF_THE_MACHINE = ("device", "devices", "data", "label", "replay")
"""Where a run is computed, and what it is called, may change between its parts; what is computed may not."""
_LOCK = ".lock"
_SUMMARY: Mapping[str, Kind] = {
    "benchmark": TEXT,
    "method": TEXT,
    "noise": NUMBER,
    "noisy_tasks": NAMES,
    "epochs": WHOLE,
    "primary_metric": by_task(TEXT),
    "higher_is_better": by_task(FLAG),
    "scores": by_task(SCORE),
    "weights": perhaps(by_task(SCORE)),
    "validation_error": SCORE,
    "seconds_per_step": SCORE,
}
"""What is read back from summary.json of a run that is finished."""
_WHY_NOT_LONGER = "; only more epochs are possible, and only with a constant learning rate"


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
        try:
            summary = dict(mapping(json.loads(read_text(path)), "it"))
            for name, kind in _SUMMARY.items():
                kind.checked(summary.get(name), name)
            for name in ("primary_metric", "higher_is_better", "weights"):
                if summary[name] is not None and summary[name].keys() != summary["scores"].keys():
                    raise ValueError(f"{name} must name the tasks of scores")
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} is not the summary of a run ({error}); delete it or make the run again"
            ) from error
        return summary

    @property
    def epochs(self) -> int | None:
        """How many epochs the run in the folder is to have; None where there is no run."""
        path = self.path / "config.yaml"
        epochs: int | None = read_config(path)["epochs"] if path.exists() else None
        return epochs

    @property
    def code(self) -> str:
        """The fingerprints of the code that trained the run, several where it was resumed with other code."""
        recorded = read_config(self.path / "config.yaml").get("code", "not recorded")
        return str(recorded)

    def open(self, config: Resolved, found: Mapping[str, Any], resume: bool, wait: float = 0.0, code: str = "") -> None:
        """Claim the folder for this configuration; refuses one that belongs to another run.

        `found`: what defines the run besides its configuration, as plain values (which data it is, all options).
        `wait`: seconds to wait for a process that is still training in it. `code`: the fingerprint of what trains now;
        a run that goes on with other code keeps both.
        """
        self._refuse_others(resume)
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self.lock.acquire(timeout=wait)
        except Timeout:
            raise ValueError(
                f"another process is training in {self.path}; wait for it, or choose another --out"
            ) from None
        try:
            self._claim(config, found, resume, code)
        except BaseException:
            self.close()
            raise

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

    def _claim(self, config: Resolved, found: Mapping[str, Any], resume: bool, code: str) -> None:
        self._refuse_others(resume)
        existing, new = self.path / "config.yaml", {**config.to_dict(), **found}
        if existing.exists():
            old = read_config(existing)
            longer = config.epochs > old["epochs"] and config.schedule == "constant"
            for name, value in new.items():
                if name in _OF_THE_MACHINE or (name == "epochs" and longer):
                    continue
                if name in old and old[name] != value:
                    raise ValueError(
                        f"{name} is {value!r}, but the run in {self.path} was started with {shortened(old[name], 400)}"
                        f"{_WHY_NOT_LONGER if name == 'epochs' else ''}"
                    )
            if longer:
                old = {**old, "epochs": config.epochs}
                (self.path / "summary.json").unlink(missing_ok=True)
            codes = str(old.get("code", "not recorded"))
            goes_on = code not in codes and not (self.path / "summary.json").exists()
            if longer or goes_on:
                write_whole(existing, config_yaml({**old, "code": f"{codes} and {code}" if goes_on else codes}))
        else:
            write_whole(existing, config_yaml({**new, "code": code}))
        for path in [*unfinished(self.path), *unfinished(self.checkpoints)]:
            path.unlink(missing_ok=True)

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


def config_yaml(config: Mapping[str, Any]) -> bytes:
    """The content of config.yaml, with the versions of what is installed."""
    packages = ("excessmtl", "torch", "lightning", "numpy")
    versions = {"python": platform.python_version(), **{name: _version(name) for name in packages}}
    try:
        return yaml.safe_dump({**config, "versions": versions}, sort_keys=False).encode()
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"options must be plain values (numbers, texts, lists), or config.yaml cannot hold them: {reason}"
        ) from error


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        import excessmtl

        return excessmtl.__version__ if package == "excessmtl" else None
