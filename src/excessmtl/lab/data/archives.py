"""Archives read member by member into memory: nothing is unpacked, so no member can land outside a folder."""

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip", ".whl")
_LIMIT = 256 * 2**20
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,  # zipfile's word for an encrypted member or an unknown compression
)


class ArchiveError(ValueError):
    """An archive that cannot be read or should not be trusted."""


def is_archive(path: Path) -> bool:
    """Whether the name is that of an archive this module reads."""
    return path.name.lower().endswith(_SUFFIXES)


def member_names(archive: Path) -> list[str]:
    """The names of all plain files in the archive; a name that leaves the archive's folder is an error."""
    with _files(archive) as files:
        names = [name for name, _, _ in files]
    for name in names:
        if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or ":" in name[:3]:
            raise ArchiveError(f"{archive} holds '{name}', which points outside the archive; do not trust it.")
    return names


def read_members(archive: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """The contents of the plain files with exactly these names, in the archive's own order (one pass)."""
    wanted, missing = frozenset(names), set(names)
    with _files(archive) as files:
        for name, size, read in files:
            if name not in wanted:
                continue
            if size > _LIMIT:
                raise ArchiveError(f"'{name}' in {archive} claims {size:,} bytes; more than {_LIMIT:,} is not read.")
            missing.discard(name)
            yield name, read()
    if missing:
        raise ArchiveError(f"{archive} holds no plain file '{min(missing)}'.")


@contextmanager
def _files(archive: Path) -> Iterator[Iterator[tuple[str, int, Callable[[], bytes]]]]:
    """Name, claimed size and content, once it is asked for, of every plain file; while it is open."""
    try:
        if archive.suffix.lower() in (".zip", ".whl"):
            with zipfile.ZipFile(archive) as opened:
                plain = (member for member in opened.infolist() if not member.is_dir())
                yield ((member.filename, member.file_size, partial(opened.read, member)) for member in plain)
        else:
            with tarfile.open(archive) as tar:
                yield ((member.name, member.size, partial(_read, tar, member)) for member in tar if member.isfile())
    except _BROKEN as error:
        raise ArchiveError(f"{archive} is damaged or no archive ({error}); fetch it again.") from error


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()
