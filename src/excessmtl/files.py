"""Writing files that are whole or not there; reading small files that may be anything."""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}")
_LARGEST = 2**28
"""Bytes of a file with settings or results; a summary of 10,000 tasks has a hundredth of that."""


def check_replaceable(path: Path) -> None:
    """Refuses a name at which something stands that is not a plain file: replacing a pipe or a link breaks it."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # the second one is told by who makes the folder
        return
    if not stat.S_ISREG(mode):
        raise ValueError(
            f"{path} is {_in_words(mode)}, and only a plain file can be written; name a file"
            f"{', or the one that the link leads to' if stat.S_ISLNK(mode) else ''}"
        )


def read_bytes(path: Path, largest: int | None = _LARGEST) -> bytes:
    """The content of a plain file, or of the one that a link leads to.

    Folders of runs are passed around: a pipe or a device in the place of a file would never end.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error})") from error
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is {_in_words(mode)}, not a plain file")
    with path.open("rb") as file:
        content = file.read(-1 if largest is None else largest + 1)
    if largest is not None and len(content) > largest:
        raise ValueError(f"{path} has more than {largest:,} bytes, too many for such a file")
    return content


def read_text(path: Path) -> str:
    """The same as text in UTF-8."""
    return read_bytes(path).decode()


def is_plain_file(path: Path, root: Path) -> bool:
    """Whether it is a regular file that really lies below `root`."""
    try:
        return path.is_file() and path.resolve().is_relative_to(root.resolve())
    except (OSError, ValueError):
        return False


def _in_words(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its place at `path` whole when the block ends, or not at all."""
    check_replaceable(path)
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
