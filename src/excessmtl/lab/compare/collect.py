"""All finished runs under a folder as one table, wherever in it they lie; and such a table as a CSV file."""

import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from excessmtl.files import atomic_write, read_bytes, read_text
from excessmtl.lab.compare.csv_text import csv_text, restored
from excessmtl.lab.compare.rows import NOT_RECORDED
from excessmtl.lab.data.noise_kinds import UNIFORM
from excessmtl.lab.data.robust_losses import PLAIN as PLAIN_LOSS
from excessmtl.lab.data.tasks import SHARE
from excessmtl.plain import FLAG, NAMES, NUMBER, OPTIONS, SCORE, TEXT, WHOLE, Kind, by_task, mapping, perhaps

PLAIN: Mapping[str, Kind] = {
    "benchmark": TEXT,
    "source": TEXT,
    "label": TEXT,
    "code": TEXT,
    "method": TEXT,
    "loss": TEXT,
    "noise": NUMBER,
    "noise_kind": TEXT,
    "seed": WHOLE,
    "epochs": WHOLE,
    "optimiser": TEXT,
    "learning_rate": SCORE,
    "weight_decay": SCORE,
    "clean_score": SCORE,
    "noisy_score": SCORE,
    "overall_score": SCORE,
    "validation_error": SCORE,
    "chosen_epoch": SCORE,
    "chosen_validation_error": SCORE,
    "clean_weight": SCORE,
    "seconds_per_step": SCORE,
}
"""Columns with one plain value per run."""
NESTED: Mapping[str, Kind] = {
    "options": OPTIONS,
    "method_options": OPTIONS,
    "settings": OPTIONS,
    "noisy_tasks": NAMES,
    "primary_metric": by_task(TEXT),
    "higher_is_better": by_task(FLAG),
    "units": by_task(Kind("text", lambda value: isinstance(value, str))),
    "scores": by_task(SCORE),
    "mean_scores": by_task(SCORE),
    "metrics": by_task(SCORE),
    "weights": perhaps(by_task(SCORE)),
    "chosen_scores": perhaps(by_task(SCORE)),
}
"""Columns with a list or a dict by task per run: JSON in a CSV file."""
_UNITS = {
    **dict.fromkeys(("accuracy", "pixel_accuracy", "miou", "within_11.25", "within_22.5", "within_30"), SHARE),
    **dict.fromkeys(("nmse", "rel_error"), "ratio"),
}
"""Of metrics, for runs whose summary names no units."""
_MISSING: Mapping[str, Any] = {
    "noise_kind": UNIFORM,
    "loss": PLAIN_LOSS,
    "optimiser": NOT_RECORDED,
    "code": NOT_RECORDED,
    "method_options": {},
    "settings": {},
}
"""What older runs do not say."""
_LARGEST_TABLE = 2**28
"""Bytes, unpacked; a table of 100,000 runs has about as many."""
_TABLES = ("runs.csv", "runs.csv.gz")
_FOLD = re.compile(r"; fold \d+ of \d+")
"""In the source of a run that `crossval` trained on a part of the training data."""
_TEXTS = ("folder", *(name for name, kind in PLAIN.items() if kind is TEXT))


def collect(folder: Path) -> pd.DataFrame:
    """One row per finished run, sorted: the columns `PLAIN` and `NESTED`, and `folder` (relative to `folder`).

    Folds of a cross-validation are left out: they are trained on less data than the other runs.
    A folder without run folders but with a `runs.csv` that `write_table` wrote gives the rows of that file.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; pass one that holds runs")
    paths = sorted(folder.rglob("summary.json"))
    if paths:
        rows = [_row(_read_json(path), path.parent.relative_to(folder).as_posix(), path) for path in paths]
        rows = [row for row in rows if not _FOLD.search(row["source"] or "")]
        if not rows:
            raise ValueError(
                f"{folder} holds the folds of a cross-validation and no run on all training data; pass another folder"
            )
        frame = pd.DataFrame(rows, columns=["folder", *PLAIN, *NESTED])
        return frame.sort_values(["benchmark", "label", "noise", "seed"], ignore_index=True, kind="stable")
    tables = sorted(path for name in _TABLES for path in folder.rglob(name))
    if not tables:
        raise ValueError(f"{folder} holds no finished run; pass the folder of a sweep, or of one run")
    return pd.concat([_moved(read_table(path), path.parent.relative_to(folder)) for path in tables], ignore_index=True)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Collected runs as a CSV file, compressed where its name ends in .gz; equal runs give equal bytes."""
    plain = frame[["folder", *PLAIN, *NESTED]].copy()
    for column in NESTED:
        plain[column] = [json.dumps(_rounded(value)) for value in frame[column]]
    content = csv_text(plain, "%.7g").encode()
    with atomic_write(path) as file:
        file.write(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def read_table(path: Path) -> pd.DataFrame:
    """The inverse of `write_table`."""
    numbers = {name: ["", "nan"] for name in PLAIN if name not in _TEXTS}
    try:
        file = io.BytesIO(_table_bytes(path))
        plain = pd.read_csv(file, dtype=dict.fromkeys(_TEXTS, str), keep_default_na=False, na_values=numbers)
        plain = plain.assign(**{name: plain[name].map(restored) for name in _TEXTS if name in plain})
        rows = [
            _row(
                {name: json.loads(value) if name in NESTED else value for name, value in row.items()},
                _inside(row["folder"]),
                path,
            )
            for row in plain.astype(object).where(plain.notna(), None).to_dict("records")
        ]
    except (pd.errors.ParserError, pd.errors.EmptyDataError, KeyError, TypeError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not a table of runs ({reason}); write it again with a sweep") from error
    except ValueError as error:
        message = str(error)
        raise ValueError(message if message.startswith(str(path)) else f"{path}: {message}") from error
    return pd.DataFrame(rows, columns=["folder", *PLAIN, *NESTED])


def _table_bytes(path: Path) -> bytes:
    """A table of runs, unpacked: a few bytes may claim to be gigabytes."""
    content = read_bytes(path)
    if path.suffix == ".gz":
        with gzip.open(io.BytesIO(content)) as file:
            content = file.read(_LARGEST_TABLE + 1)
    if len(content) > _LARGEST_TABLE:
        raise ValueError(f"{path} holds more than {_LARGEST_TABLE:,} bytes, too many for a table of runs")
    return content


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}); delete the run or make it again") from error


def _row(summary: Any, folder: str, path: Path) -> dict[str, Any]:
    """The columns of one run, each of its kind; `path` names the file in errors."""
    found: dict[str, Any] = {
        "folder": folder,
        **{name: mapping(summary, str(path)).get(name) for name in (*PLAIN, *NESTED)},
    }
    found |= {name: value for name, value in _MISSING.items() if found[name] is None}
    if found["units"] is None and NESTED["primary_metric"].fits(found["primary_metric"]):
        found["units"] = {task: _UNITS.get(name, "") for task, name in found["primary_metric"].items()}
    for name, kind in {**PLAIN, **NESTED}.items():
        kind.checked(found[name], f"{path}: {name}")
    tasks = set(found["scores"])
    for name in ("primary_metric", "higher_is_better", "units"):
        if set(found[name]) != tasks:
            raise ValueError(
                f"{path}: {name} must name the tasks of scores, {sorted(tasks)}, found {sorted(found[name])}"
            )
    return found


def _inside(folder: str) -> str:
    """A relative path that stays below the folder of its table: a table may come from anywhere."""
    path = PurePosixPath(folder.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[:1]:
        raise ValueError(f"folder must be a path below the table's own folder, found {folder!r}")
    return str(path)


def _moved(frame: pd.DataFrame, below: Path) -> pd.DataFrame:
    return frame.assign(folder=[(below / folder).as_posix() for folder in frame["folder"]])


def _rounded(value: Any) -> Any:
    """Seven significant digits, as in the other columns; JSON has nothing for NaN."""
    if isinstance(value, dict):
        return {key: _rounded(own) for key, own in value.items()}
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(f"{value:.7g}")
