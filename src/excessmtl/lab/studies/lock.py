"""The lock of a sweep: one at a time works in a folder. It is released when its process ends, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds the folder of a sweep for the block; refuses it while another sweep does."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / ".lock").acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another sweep is at work in {folder}; wait for it, or choose another --out") from None
    with lock:
        yield
