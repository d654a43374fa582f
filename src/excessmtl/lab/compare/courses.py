"""The course of training as a run folder keeps it: steps.npz and metrics.csv, read with care.

Folders of runs are passed around; a damaged or made-up file is one sentence, and nothing outside the folder is read.
"""

import math
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError

import numpy as np
import pandas as pd

QUANTITIES = ("weights", "losses", "excess_risks")
_LARGEST = 2**31
"""Bytes of one array; a run of a million steps with 500 tasks has as many."""
_DAMAGED = (ValueError, KeyError, EOFError, SyntaxError, MemoryError, OverflowError, RuntimeError, TokenError)
"""What numpy and zipfile raise where an archive is damaged or made up, besides their own errors."""


@dataclass(frozen=True)
class Steps:
    """Step by step: one row per step, one column per task."""

    weights: pd.DataFrame
    losses: pd.DataFrame
    excess_risks: pd.DataFrame


def file_in(root: Path, folder: str, name: str) -> Path | None:
    """A file of a run below `root`; None where it is missing, no plain file, or a link that leads out of `root`."""
    path = root / folder / name
    return path if is_plain_file(path, root) else None


def is_plain_file(path: Path, root: Path) -> bool:
    """Whether it is a regular file that really lies below `root`."""
    try:
        return path.is_file() and path.resolve().is_relative_to(root.resolve())
    except (OSError, ValueError):
        return False


def read_steps(path: Path) -> Steps:
    """steps.npz."""
    try:
        with zipfile.ZipFile(path) as archive:
            tasks = [str(task) for task in _array(archive, "tasks", dimensions=1, kinds="U")]
            tables = {name: _array(archive, name, dimensions=2, kinds="f") for name in QUANTITIES}
        shapes = {table.shape for table in tables.values()}
        if len(shapes) != 1 or shapes.pop()[1] != len(tasks):
            raise ValueError(f"its arrays must be [steps, {len(tasks)} tasks]")
    except (*_DAMAGED, zipfile.BadZipFile, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # the file itself, not what its entries say
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} is not the steps.npz of a run ({reason}); delete the run or make it again") from error
    return Steps(**{name: pd.DataFrame(table, columns=tasks) for name, table in tables.items()})


def read_epochs(path: Path) -> pd.DataFrame:
    """metrics.csv: one row per epoch, all numbers."""
    try:
        return pd.read_csv(path).apply(pd.to_numeric)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path} is not the metrics.csv of a run ({reason}); delete the run or make it again"
        ) from error


def thinned(course: pd.DataFrame, rows: int) -> pd.DataFrame:
    """At most `rows` rows, each the mean over its stretch of the course; stretches have nearly the same length."""
    return course.groupby(np.arange(len(course)) * min(rows, len(course)) // len(course)).mean()


def _array(archive: zipfile.ZipFile, name: str, dimensions: int, kinds: str) -> np.ndarray:
    """One array of the archive; what its header claims is checked before any memory is taken."""
    entry = archive.getinfo(f"{name}.npy")
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = header(file)
    size = math.prod(shape) * kind.itemsize
    if kind.kind not in kinds or len(shape) != dimensions:
        raise ValueError(f"{name} is {kind} of shape {shape}, not {dimensions}-dimensional numbers or names")
    if size > min(_LARGEST, entry.file_size):
        raise ValueError(f"{name} claims {size} bytes and has {entry.file_size}")
    with archive.open(entry) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
