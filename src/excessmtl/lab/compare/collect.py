"""What runs have left behind, as tables: all finished runs under a folder, or the course of one.

Folders of runs are passed around. A damaged or made-up file is one sentence, and nothing outside the folder is read.
"""

import gzip
import io
import json
import math
import re
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd

from excessmtl.files import read_bytes, write_whole
from excessmtl.lab.runs.summary import NESTED, PLAIN, QUANTITIES, TEXTS, columns_of, read_json
from excessmtl.lab.schema import explained

_LARGEST_TABLE = 2**28
"""Bytes, unpacked; a table of 100,000 runs has about as many."""
_TABLES = ("runs.csv", "runs.csv.gz")
_FOLD = re.compile(r"; fold \d+ of \d+")
"""In the source of a run that `crossval` trained on a part of the training data."""
_TEXTS = ("folder", *TEXTS)
_LARGEST = 2**31
"""Bytes of one array; a run of a million steps with 500 tasks has as many."""
_ADVICE = "delete the run or make it again"
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""Apostrophes that were there before count too, so that `restored` takes away exactly the one that was added."""


def collect(folder: Path | str) -> pd.DataFrame:
    """One row per finished run below a folder, sorted: the columns `PLAIN` and `NESTED`, and its own folder's name.

    Folds of a cross-validation are left out: they are trained on less data than the other runs.
    A folder without run folders but with a `runs.csv` that `write_table` wrote gives the rows of that file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; pass one that holds runs")
    paths = sorted(folder.rglob("summary.json"))
    if paths:
        rows = [
            {"folder": path.parent.relative_to(folder).as_posix(), **columns_of(read_json(path), str(path))}
            for path in paths
        ]
        rows = [row for row in rows if not _FOLD.search(row["source"])]
        if not rows:
            raise ValueError(
                f"{folder} holds the folds of a cross-validation and no run on all training data; pass another folder"
            )
        frame = pd.DataFrame(rows, columns=["folder", *PLAIN, *NESTED])
        return frame.sort_values(["benchmark", "label", "noise", "seed"], ignore_index=True, kind="stable")
    tables = sorted(path for name in _TABLES for path in folder.rglob(name))
    if not tables:
        raise ValueError(f"{folder} holds no finished run; pass the folder of a sweep, or of one run")
    frames = [read_table(path) for path in tables]
    for path, frame in zip(tables, frames, strict=True):
        frame["folder"] = [(path.parent.relative_to(folder) / own).as_posix() for own in frame["folder"]]
    return pd.concat(frames, ignore_index=True)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Collected runs as a CSV file, compressed where its name ends in .gz; equal runs give equal bytes."""
    plain = frame[["folder", *PLAIN, *NESTED]].copy()
    for column in NESTED:
        plain[column] = [json.dumps(_rounded(value)) for value in frame[column]]
    content = csv_text(plain, "%.7g").encode()
    write_whole(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def read_table(path: Path) -> pd.DataFrame:
    """The inverse of `write_table`."""
    numbers = {name: ["", "nan"] for name in PLAIN if name not in _TEXTS}
    damage = (ValueError, KeyError, TypeError, EOFError, zlib.error)
    with explained(f"{path} is not a table of runs", "write it again with a sweep", *damage):
        file = io.BytesIO(_table_bytes(path))
        plain = pd.read_csv(file, dtype=dict.fromkeys(_TEXTS, str), keep_default_na=False, na_values=numbers)
        plain = plain.assign(**{name: plain[name].map(restored) for name in _TEXTS if name in plain})
        rows = [
            {
                "folder": _inside(row["folder"]),
                **columns_of({key: json.loads(own) if key in NESTED else own for key, own in row.items()}, "a row"),
            }
            for row in plain.astype(object).where(plain.notna(), None).to_dict("records")
        ]
    return pd.DataFrame(rows, columns=["folder", *PLAIN, *NESTED])


def _table_bytes(path: Path) -> bytes:
    """A table of runs, unpacked: a few bytes may claim to be gigabytes."""
    content = read_bytes(path)
    if path.suffix == ".gz":
        with gzip.open(io.BytesIO(content)) as file:
            content = file.read(_LARGEST_TABLE + 1)
    if len(content) > _LARGEST_TABLE:
        raise ValueError(f"it holds more than {_LARGEST_TABLE:,} bytes")
    return content


def _inside(folder: str) -> str:
    """A relative path that stays below the folder of its table: a table may come from anywhere."""
    path = PurePosixPath(folder.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[:1]:
        raise ValueError(f"folder must be a path below the table's own folder, found {folder!r}")
    return str(path)


def _rounded(value: Any) -> Any:
    """Seven significant digits, as in the other columns; JSON has nothing for NaN."""
    if isinstance(value, dict):
        return {key: _rounded(own) for key, own in value.items()}
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(f"{value:.7g}")


def csv_text(frame: pd.DataFrame, float_format: str = "%.6g") -> str:
    """The frame as CSV; numbers, and texts that are numbers, stay as they are."""
    texts = frame.map(_shown) if len(frame) else frame
    return str(texts.to_csv(index=False, float_format=float_format, lineterminator="\n"))


def restored(cell: str) -> str:
    """The text that `csv_text` was given for this cell."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _shown(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Steps:
    """Step by step: one row per step, one column per task."""

    weights: pd.DataFrame
    losses: pd.DataFrame
    excess_risks: pd.DataFrame


def read_steps(path: Path) -> Steps:
    """steps.npz."""
    with path.open("rb") as file, explained(f"{path} is not the steps.npz of a run", _ADVICE, Exception):
        with ZipFile(file) as archive:  # a few bytes may claim to be gigabytes
            if any(entry.file_size > _LARGEST for entry in archive.infolist()):
                raise ValueError(f"an array has more than {_LARGEST:,} bytes")
        file.seek(0)
        with np.load(file) as arrays:  # refuses pickled objects
            tasks = [str(task) for task in arrays["tasks"]]
            tables = {name: arrays[name] for name in QUANTITIES}
        expected = (len(tables["losses"]), len(tasks))
        if any(table.shape != expected or table.dtype.kind != "f" for table in tables.values()):
            raise ValueError(f"its arrays must be numbers of shape [steps, {len(tasks)} tasks]")
        return Steps(**{name: pd.DataFrame(table, columns=tasks) for name, table in tables.items()})


def read_epochs(path: Path) -> pd.DataFrame:
    """metrics.csv: one row per epoch, all numbers."""
    with path.open("rb") as file, explained(f"{path} is not the metrics.csv of a run", _ADVICE, Exception):
        return pd.read_csv(file).apply(pd.to_numeric)


def thinned(course: pd.DataFrame, rows: int) -> pd.DataFrame:
    """At most `rows` rows, each the mean over its stretch of the course; stretches have nearly the same length."""
    return course.groupby(np.arange(len(course)) * min(rows, len(course)) // len(course)).mean()
