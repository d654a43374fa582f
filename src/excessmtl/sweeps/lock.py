"""A folder in which one sweep works at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: two sweeps at once are then up to the user
    fcntl = None  # type: ignore[assignment]


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds the folder for the block; refuses it while another process does. The lock dies with its process."""
    folder.mkdir(parents=True, exist_ok=True)
    place = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"another sweep is at work in {folder}; wait for it, or choose another --out"
                ) from None
        yield
    finally:
        os.close(place)
