"""The data sets by name: the cache folder, what can be fetched into it, and where the rest is to be had."""

import hashlib
import http.client
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from excessmtl.benchmarks.base import DataNotFoundError
from excessmtl.benchmarks.mnist_sources import MNIST_FILES, MNIST_SOURCES, Fetch
from excessmtl.files import write_whole

_FETCH_ERRORS = (OSError, ValueError, EOFError, zlib.error, http.client.HTTPException, subprocess.SubprocessError)


@dataclass(frozen=True)
class Dataset:
    """A named data set; one without sources cannot be fetched, `directions` says where people get it."""

    name: str
    summary: str
    directions: str
    files: Mapping[str, str] = field(default_factory=dict)
    """What is fetched: file name -> sha256."""
    sources: Mapping[str, Fetch] = field(default_factory=dict)
    """What can be fetched from: its name for messages -> the function that returns the files' contents."""


_BY_PATH = (
    Dataset(
        "sarcos",
        "inverse dynamics of a robot arm, 44,484 + 4,449 rows, 21 inputs, 7 torques",
        "download sarcos_inv.mat and sarcos_inv_test.mat from the data page of the book Gaussian Processes "
        "for Machine Learning (gaussianprocess.org/gpml/data)",
    ),
    Dataset(
        "office-home",
        "15,588 pictures of 65 classes in 4 domains",
        "request Office-Home from its authors (hemanthdv.org/officeHomeDataset.html); any folder or archive "
        "laid out as domain/class/image will do",
    ),
    Dataset(
        "nyuv2",
        "795 + 654 indoor scenes with 13-class labels, depth and normals",
        "download the preprocessed NYUv2 arrays that the MTAN repository links to (github.com/lorenmt/mtan) "
        "and unpack them",
    ),
    Dataset(
        "pacs",
        "9,991 pictures of 7 classes in 4 domains",
        "get PACS (Li et al., ICCV 2017) as a folder or archive laid out as domain/class/image and train "
        "with `office-home --data PATH`",
    ),
    Dataset(
        "school",
        "exam scores of 15,362 pupils of 139 London schools",
        "get the Inner London Education Authority data as school.csv: no header, 28 features, the score, the school",
    ),
)
_MNIST = Dataset("mnist", "70,000 handwritten digits", "run `excessmtl data get mnist`", MNIST_FILES, MNIST_SOURCES)


def cache_folder() -> Path:
    """`EXCESSMTL_DATA` where it is set, else a folder of ours in the platform's cache; not created here."""
    if chosen := os.environ.get("EXCESSMTL_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "excessmtl"


def catalogue() -> tuple[Dataset, ...]:
    """All named data sets, those that can be fetched first."""
    return (_MNIST, *_BY_PATH)


def where(name: str) -> Path | None:
    """The data set's place in the cache folder, or None while it is not (completely) there."""
    dataset = _dataset(name)
    folder = cache_folder() / name
    complete = folder.exists() and all((folder / file).is_file() for file in dataset.files)
    return folder if complete else None


def find(name: str, data: Path | None, stand_in: str | None = None) -> Path:
    """`data` if given, else the cache; raises DataNotFoundError with directions if neither is there."""
    dataset = _dataset(name)
    place = where(name) if data is None else Path(data)
    if place is not None and place.exists():
        if not (place.is_file() or place.is_dir()):  # reading a pipe or a device may never end
            raise ValueError(f"{place} is neither a file nor a folder; name one of them")
        return place
    missing = f"The data of {name} is not available" if data is None else f"--data {data} does not exist"
    other = f", or use the stand-in `{stand_in}`, which needs no file" if stand_in else ""
    raise DataNotFoundError(
        f"{missing}: {dataset.directions}, then pass --data PATH or put it at {cache_folder() / name}{other}."
    )


def get(name: str, report: Callable[[str], object] = lambda line: None) -> Path:
    """The data set's folder, after fetching what is missing or damaged from the first source that works.

    `report` is given a line before each attempt and after each that failed.
    """
    dataset = _dataset(name)
    folder = cache_folder() / name
    if not dataset.sources:
        return find(name, None)
    if where(name) and not any(_wrong(file, (folder / file).read_bytes(), dataset) for file in dataset.files):
        return folder
    failures = []
    for source, fetch in dataset.sources.items():
        report(f"fetching {name} from {source} ...")
        try:
            files = fetch()
            if wrong := next((file for file in dataset.files if _wrong(file, files.get(file, b""), dataset)), None):
                raise ValueError(f"{wrong} is damaged, its sha256 is not the known one")
        except _FETCH_ERRORS as error:
            reason = str(error) or type(error).__name__
            report(f"  failed: {reason}")
            failures.append(f"{source} ({reason})")
            continue
        for file in dataset.files:
            write_whole(folder / file, files[file])
        return folder
    raise DataNotFoundError(f"No source of {name} worked, nothing was kept. Tried: {'; '.join(failures)}.")


def _dataset(name: str) -> Dataset:
    known = {dataset.name: dataset for dataset in catalogue()}
    if name not in known:
        raise ValueError(f"There is no data set '{name}'; known are {', '.join(known)}.")
    return known[name]


def _wrong(file: str, content: bytes, dataset: Dataset) -> bool:
    return hashlib.sha256(content).hexdigest() != dataset.files[file]
