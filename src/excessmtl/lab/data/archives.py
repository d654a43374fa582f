"""Archives unpacked into a folder that is gone afterwards; nothing can land outside it."""

import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from excessmtl.lab.schema import explained

_ZIPS = (".zip", ".whl")
_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", *_ZIPS)
_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError),
    RuntimeError,  # zipfile's word for an encrypted member or an unknown compression
)


def is_archive(path: Path) -> bool:
    """Whether the name is that of an archive this module reads."""
    return path.name.lower().endswith(_SUFFIXES)


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """A temporary folder with all files of the archive; one that is damaged, or writes elsewhere, is refused."""
    with tempfile.TemporaryDirectory() as folder:
        with explained(f"{archive} is damaged, or should not be trusted", "fetch it again", *_BROKEN):
            _unpack(archive, folder)
        yield Path(folder)


def _unpack(archive: Path, folder: str) -> None:
    if archive.suffix.lower() not in _ZIPS:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        return
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if name.startswith("/") or ".." in PurePosixPath(name.replace("\\", "/")).parts:
                raise zipfile.BadZipFile(f"'{name}' points outside")
        opened.extractall(folder)
