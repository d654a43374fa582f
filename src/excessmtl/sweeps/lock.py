"""Locks on folders: one process at a time works in one. A lock is released when its process ends, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds the folder of a sweep for the block; refuses it while another sweep does."""
    with _held(folder / ".lock", 0, f"another sweep is at work in {folder}; wait for it, or choose another --out"):
        yield


@contextmanager
def only_this_run(folder: Path, patience: float = 60.0) -> Iterator[None]:
    """Holds the folder of a run for the block; waits a while for a process that still does.

    A worker outlives a sweep that is killed by up to a step; the next sweep must not write in the same folder then.
    """
    # Not in the folder itself, which must be empty where a run begins.
    place = folder.with_name(f".{folder.name}.lock")
    with _held(place, patience, f"another process is at work in {folder}; wait for it, then start the sweep again"):
        yield


@contextmanager
def _held(place: Path, patience: float, refusal: str) -> Iterator[None]:
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise ValueError(refusal) from None
    try:
        yield
    finally:
        lock.release()
