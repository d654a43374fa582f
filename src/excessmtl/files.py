"""Writing files that are whole or not there."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}")


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its place at `path` whole when the block ends, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """The file with this content, whole or not at all."""
    with atomic_write(path) as file:
        file.write(content)


def unfinished(folder: Path) -> list[Path]:
    """What killed processes had begun to write in this folder."""
    return [path for path in folder.glob(".*") if _TEMPORARY.fullmatch(path.name)]
