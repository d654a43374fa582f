"""Archives read member by member into memory: nothing is unpacked, so no member can land outside a folder."""

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ArchiveError", "is_archive", "member_names", "read_members"]

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
    with _readable(archive):
        if _is_zip(archive):
            with zipfile.ZipFile(archive) as opened:
                names = [member.filename for member in opened.infolist() if not member.is_dir()]
        else:
            with tarfile.open(archive) as tar:
                names = [member.name for member in tar if member.isfile()]
    for name in names:
        if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or ":" in name[:3]:
            raise ArchiveError(f"{archive} holds '{name}', which points outside the archive; do not trust it.")
    return names


def read_members(archive: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """The contents of the plain files with exactly these names, in the archive's own order (one pass)."""
    missing = set(names)
    with _readable(archive):
        reader = _zip_members if _is_zip(archive) else _tar_members
        for name, content in reader(archive, frozenset(names)):
            missing.discard(name)
            yield name, content
    if missing:
        raise ArchiveError(f"{archive} holds no plain file '{min(missing)}'.")


def _zip_members(archive: Path, names: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if member.filename in names and not member.is_dir():
                _check_size(archive, member.filename, member.file_size)
                yield member.filename, opened.read(member)


def _tar_members(archive: Path, names: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name in names and member.isfile():
                _check_size(archive, member.name, member.size)
                file = tar.extractfile(member)
                assert file is not None
                yield member.name, file.read()


def _is_zip(archive: Path) -> bool:
    return archive.suffix.lower() in (".zip", ".whl")


def _check_size(archive: Path, name: str, size: int) -> None:
    if size > _LIMIT:
        raise ArchiveError(f"'{name}' in {archive} claims {size:,} bytes; more than {_LIMIT:,} is not read.")


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise ArchiveError(f"{archive} is damaged or no archive ({error}); fetch it again.") from error
