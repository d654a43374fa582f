"""A table of your own, a CSV or Parquet file: some of its columns are to be predicted from the others."""

import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from pandas.api.types import infer_dtype, is_integer_dtype, is_numeric_dtype
from torch import Tensor, nn

from excessmtl.lab.data.base import Benchmark, DataNotFoundError, Recipe, Split, shuffled
from excessmtl.lab.data.kinds import binary, classification, rare_binary, regression
from excessmtl.lab.data.networks import MLP
from excessmtl.lab.data.tasks import Kind, Task
from excessmtl.lab.schema import explained, shortened
from excessmtl.warn import warn

KINDS = {"regression": regression, "classification": classification, "binary": binary}
_FEW = 20  # different whole numbers at most are taken for classes
_CATEGORIES = 100  # different texts at most of an input column become columns of their own
_RARE = 0.2  # of the labels; where the rarer value of a binary target has fewer, it is scored by its ROC curve
_STRAY = 0.2  # of the cells at most are no numbers in what is taken for a column of numbers
_SHARES = (0.7, 0.15)
_SMALLEST = 20
_NAMES = "give every column a name"


def load(
    data: Path,
    *,
    targets: list[str],
    kinds: dict[str, str] | None = None,
    inputs: list[str] | None = None,
    id: str | None = None,
    split_seed: int = 0,
    hidden: int = 128,
    layers: int = 2,
) -> Benchmark:
    """One task per target column, on a perceptron that takes the other columns.

    Args:
        data: a .csv or .csv.gz file, in UTF-8, with a header, or a .parquet file. Empty cells are missing: a missing
            target has no label; a missing input is set to the column's mean and marked in a column of its own.
        targets: the columns to predict.
        kinds: target -> regression, classification or binary. A kind that is not named is inferred: two different
            values are binary, texts and up to 20 different whole numbers are classes, anything else is regression.
        inputs: the columns to predict from; None takes all that are neither targets nor the id.
        id: a column that names the rows: no input, but in the lists of suspicious labels and held-out predictions.
        split_seed: decides which rows are for training (70 %), validation (15 %) and test (15 %).
        hidden: width of the perceptron.
        layers: how many layers it has.

    Inputs and regression targets are brought to mean 0 and variance 1 by the training rows; texts become one column
    per value. Classes are numbered in the order of their sorted values.
    """
    frame = read_table(data, id)
    chosen = dict(kinds or {})
    columns = [name for name in frame.columns if name not in (*targets, id)] if inputs is None else list(inputs)
    _check_columns(data, frame, targets, chosen, columns, id)
    ids = None if id is None else np.array(names_in(frame[id]))
    _check_texts(data, frame[[*targets, *columns]], chosen)
    parts = shuffled(len(frame), _SHARES, split_seed, *b"table")
    train = parts[0].numpy()
    tasks, values, originals = [], {}, {}
    for name in targets:
        kind = KINDS[chosen[name]] if name in chosen else infer_kind(frame[name])
        values[name], outputs, originals[name] = _target(data, frame[name], kind, train)
        tasks.append(Task(name, outputs, kind))
    features = _inputs(data, frame[columns], train)
    _warn_of_ids(data, frame[columns])
    whole = Split(features, values, file_rows=torch.arange(len(frame)), ids=ids)
    splits = [whole.rows(dict.fromkeys(values, rows)) for rows in parts]
    return Benchmark(
        Path(data.name.removesuffix(".gz")).stem,
        f"{data.name}, {len(frame):,} rows, {len(columns)} input columns",
        _scored(tasks, splits),
        *splits,
        recipe=Recipe(learning_rate=1e-3, weight_decay=0.0, batch_size=min(128, len(train)), epochs=50),
        noisy_tasks=(),
        build_trunk=lambda: MLP(features.shape[1], hidden, layers),
        build_head=lambda task: nn.Linear(hidden, task.outputs),
        originals=originals,
    )


def names_in(column: pd.Series) -> list[str]:
    """The texts in a column that names the rows; an empty cell is an empty name."""
    return list(column.astype(object).where(column.notna(), "").astype(str))


def _scored(tasks: list[Task], parts: list[Split]) -> tuple[Task, ...]:
    """The tasks, all binary ones scored by the area under the ROC curve where the labels of one of them are rare.

    All of them, so that their scores have a mean; and only where both values of each are in all three splits.
    """
    labels = [[part.targets[task.name] for part in parts] for task in tasks if task.kind == binary]
    shares = [[float(own.nanmean()) for own in (torch.cat(by_part), *by_part)] for by_part in labels]
    rare = any(min(share, 1 - share) < _RARE for share, *_ in shares)
    ranked = all(0 < share < 1 for own in shares for share in own)
    if not (rare and ranked):
        return tuple(tasks)
    return tuple(replace(task, kind=rare_binary) if task.kind == binary else task for task in tasks)


def infer_kind(column: pd.Series) -> Kind:
    """Two different values: binary; texts, or few whole numbers: classes; anything else: regression."""
    values = column.dropna().unique()
    if len(values) == 2:
        return binary
    if not is_numeric_dtype(column):
        return classification
    whole = all(float(value).is_integer() for value in values)
    return classification if whole and len(values) <= _FEW else regression


def read_table(path: Path, id: str | None = None) -> pd.DataFrame:
    """The table in a .csv, .csv.gz or .parquet file, ids as the file has them; a ValueError where it cannot be one."""
    if not path.is_file():
        raise DataNotFoundError(f"{path} is not a file: name a CSV file with a header, or a Parquet file")
    frame = _read_parquet(path) if path.name.lower().endswith(".parquet") else _read_csv(path, id)
    frame.columns = [str(name).strip() for name in frame.columns]
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"{path} has two columns called {twice[0]!r}, spaces around it aside; rename one")
    if len(frame) < _SMALLEST:
        raise ValueError(f"{path} has {len(frame)} rows; at least {_SMALLEST} are needed for three splits")
    return frame


def _read_csv(path: Path, id: str | None) -> pd.DataFrame:
    broken = (ValueError, OSError, EOFError, zlib.error, pd.errors.ParserError)
    with (
        explained(f"{path} has rows with more fields than its header has names", _NAMES, pd.errors.ParserWarning),
        explained(f"{path} cannot be read as a CSV file in UTF-8", "save it as one", *broken),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # False: a comma at the end of the rows must not make their first field an index and shift all columns.
        read = partial(pd.read_csv, path, encoding="utf-8", index_col=False)
        frame, names = read(low_memory=False), read(header=None, nrows=1, dtype=str).iloc[0].dropna()
        if names.duplicated().any():  # pandas renames the second one
            return frame.set_axis([*names, *frame.columns[len(names) :]], axis=1)
        texts = [name for name in frame if str(name).strip() == id or not is_numeric_dtype(frame[name])]
        texts = [name for name in texts if infer_dtype(frame[name]) != "boolean"]
        if texts:  # of texts only an empty cell is missing: "NA" and "None" may be classes
            frame[texts] = read(dtype=str, keep_default_na=False, na_values=[""])[texts]
        return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    if find_spec("pyarrow") is None:
        raise ValueError(f"{path} needs pyarrow; run pip install pyarrow, or save the table as a .csv file")
    with explained(f"{path} cannot be read as a Parquet file", "save it anew", ValueError, OSError):
        frame = pd.read_parquet(path, engine="pyarrow")
    # An index with a name is a column like the others.
    return frame.reset_index(drop=frame.index.names == [None])


def _check_columns(
    path: Path, frame: pd.DataFrame, targets: list[str], kinds: dict[str, str], inputs: list[str], id: str | None
) -> None:
    if not targets:
        raise ValueError(f"targets is empty; name at least one column of {path}")
    own = [] if id is None else [id]
    for what, names in (("targets", targets), ("inputs", inputs), ("kinds", [*kinds]), ("id", own)):
        unknown = next((name for name in names if name not in frame.columns), None)
        if unknown is not None:
            raise ValueError(f"{what} names {unknown!r}, which is no column of {path}; {_known(frame, unknown)}")
    stray = next((name for name in kinds if name not in targets), None)
    if stray is not None:
        raise ValueError(f"kinds names {stray!r}, which is not among the targets {shortened(targets)}")
    wrong = next((kind for kind in kinds.values() if kind not in KINDS), None)
    if wrong is not None:
        raise ValueError(f"kinds has {wrong!r}; a kind is one of {list(KINDS)}")
    both = next((name for name in inputs if name in targets), None)
    if both is not None or not inputs:
        problem = f"{both!r} is both input and target" if both is not None else "no column is left as an input"
        raise ValueError(f"{problem}; {path} has {len(frame.columns)} columns, {shortened(list(frame.columns))}")
    if id in targets or id in inputs:
        raise ValueError(f"id names {id!r}, which is also {'a target' if id in targets else 'an input'}; leave one out")


def _check_texts(path: Path, frame: pd.DataFrame, kinds: dict[str, str]) -> None:
    """Of columns of numbers with a cell that is none, a "?" for example: they would be taken for texts as a whole."""
    for name in [own for own in frame if not is_numeric_dtype(frame[own]) and kinds.get(own, "") in ("", "regression")]:
        known = frame[name].dropna()
        stray = known[pd.to_numeric(known, errors="coerce").isna()]
        if 0 < len(stray) <= _STRAY * len(known):
            cell = f"{stray.iloc[0]!r} in row {stray.index[0]} (the first is 0)"
            found = f"column {name!r} of {path} holds {len(known) - len(stray):,} numbers, and {cell}"
            if name in kinds or known.nunique() > _CATEGORIES:
                raise ValueError(f"{found}; empty the cell, or pass --kind {name}=classification for classes")
            warn(f"{found}, so that all are taken for texts; empty the cell, or repair it, if they are numbers")


def _known(frame: pd.DataFrame, name: str) -> str:
    """The columns, or of many those whose names are nearest."""
    names = list(map(str, frame.columns))
    if len(names) <= _CATEGORIES:
        return f"it has {names}"
    nearest = get_close_matches(name, names, n=5) or names[:5]
    return f"it has {len(names):,} columns, such as {nearest}"


def _target(
    path: Path, column: pd.Series, kind: Kind, train: np.ndarray
) -> tuple[Tensor, int, Callable[[float], float | str]]:
    """The targets with NaN for missing ones, how many outputs the task has, and how to read a target in the file."""
    if kind == regression:
        if not is_numeric_dtype(column):
            raise ValueError(f"column {column.name!r} of {path} holds texts; a regression target must be numbers")
        numbers, mean, deviation = _standardised(column, train)
        return numbers, 1, partial(_in_unit, mean, deviation)
    values = sorted(column.dropna().unique())
    if kind == binary and len(values) != 2:
        raise ValueError(f"column {column.name!r} of {path} has {len(values)} different values; binary needs two")
    classes = column.map({value: float(number) for number, value in enumerate(values)}).astype(float)
    outputs = 1 if kind == binary else len(values)
    return torch.tensor(classes.to_numpy(dtype=np.float32)), outputs, partial(class_name, values)


def class_name(names: Sequence[object], number: float) -> float | str:
    """A class as the file has it; a number stays one."""
    name = names[int(number)]
    if isinstance(name, bool) or not isinstance(name, int | float | np.number):
        return str(name)
    return int(name) if float(name).is_integer() else float(name)


def _in_unit(mean: float, deviation: float, number: float) -> float:
    return float(f"{mean + deviation * number:.7g}")  # targets are float32


def _inputs(path: Path, frame: pd.DataFrame, train: np.ndarray) -> Tensor:
    columns = []
    for name in frame.columns:
        column = frame[name]
        if is_numeric_dtype(column):
            columns.append(_standardised(column, train)[0].nan_to_num(0.0))
        else:
            values = sorted(column.iloc[train].dropna().astype(str).unique())
            if len(values) > _CATEGORIES:
                raise ValueError(
                    f"column {name!r} of {path} has {len(values)} different texts, more than {_CATEGORIES}; if it "
                    f"names the rows, pass --id {name} (id={name!r} in Python), else name the columns to use with "
                    "the option `inputs`"
                )
            texts = column.astype(str).to_numpy()
            columns += [torch.tensor((texts == value).astype(np.float32)) for value in values]
        missing = column.isna().to_numpy()
        if missing.any():
            columns.append(torch.tensor(missing.astype(np.float32)))
    if not columns:
        raise ValueError(f"the inputs of {path} hold nothing; name other columns with the option `inputs`")
    return torch.stack(columns, dim=1)


def _warn_of_ids(path: Path, inputs: pd.DataFrame) -> None:
    """Of an input column of whole numbers or texts, all of them different."""
    for name, column in inputs.items():
        texts = not is_numeric_dtype(column)
        if (texts or is_integer_dtype(column)) and column.is_unique:
            warn(
                f"column {name!r} of {path} has another value in every row; if it names the rows, pass --id {name} "
                f"(id={name!r} in Python) to keep it out of the inputs"
            )
            return


def _standardised(column: pd.Series, train: np.ndarray) -> tuple[Tensor, float, float]:
    """The numbers by mean and deviation of the training rows, and these two; a constant column keeps its unit."""
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(values).any():
        raise ValueError(f"column {column.name!r} holds an infinite number; repair or remove its row")
    known = values[train][~np.isnan(values[train])]
    mean = float(known.mean()) if len(known) else 0.0
    deviation = (float(known.std()) if len(known) else 0.0) or 1.0
    return torch.tensor((values - mean) / deviation, dtype=torch.float32), mean, deviation
