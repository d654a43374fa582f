"""Benchmarks by name: registered ones, functions of your own by import path, and tables in files; all are checked."""

import importlib
import inspect
import os
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import PydanticUserError
from torch import nn

from excessmtl.lab.data.base import Benchmark, Entry, Split, names, registered
from excessmtl.lab.data.tasks import known
from excessmtl.lab.schema import checked

_GIVEN = ("data", "seed")
"""What every loader may ask for; its other arguments are options."""
_TABLES = (".csv", ".csv.gz", ".parquet")


def find_benchmark(name: str) -> Entry:
    """The entry of a registered benchmark, of `package.module:function`, or of a table."""
    entry = registered(name)
    if entry is not None:
        return entry
    if is_table(name):
        # Imported where it is used: it needs pandas.
        from excessmtl.lab.data import table

        return Entry(name, table.load, "a table", data=Path(name))
    if is_import_path(name):
        made = import_path(name, "benchmark")
        if isinstance(made, Benchmark):
            return Entry(name, lambda: made, made.source)
        if callable(made):
            return Entry(name, made, (inspect.getdoc(made) or "").split("\n")[0])
        raise ValueError(f"benchmark {name!r} is neither a Benchmark nor a function that returns one, found {made!r}")
    raise ValueError(
        f"unknown benchmark {name!r}; the benchmarks are {names()}, a file.csv, file.csv.gz or "
        "file.parquet, or package.module:function"
    )


def check_known(name: str) -> None:
    """Refuses a benchmark that is not there; one of the package is not imported."""
    if name not in names():
        find_benchmark(name)


def is_table(name: str) -> bool:
    """Whether the name is that of a file with a table."""
    return name.lower().endswith(_TABLES)


def is_import_path(name: str) -> bool:
    """Whether this names a benchmark or a method by `package.module:name`, so that using it imports and runs code."""
    return ":" in name and not is_table(name)


def load_benchmark(name: str, data: str | None, seed: int, options: Mapping[str, Any]) -> Benchmark:
    """The benchmark with clean labels, checked."""
    entry = find_benchmark(name)
    place = entry.data if data is None else Path(data)
    if data is not None and entry.data is not None:
        raise ValueError(f"data is {data!r}, but {name!r} is the data itself; leave one of them out")
    values = {"data": place, "seed": seed}
    wanted = inspect.signature(entry.load).parameters
    if place is not None and "data" not in wanted:
        raise ValueError(f"data is {data!r}, but {name!r} takes no data; leave it out")
    given = {key: values[key] for key in _GIVEN if key in wanted}
    made = entry.load(**given, **complete_options(name, options))
    if not isinstance(made, Benchmark):
        raise ValueError(f"benchmark {name!r} must return a Benchmark, found {type(made).__name__}")
    check_benchmark(made)
    return made


def complete_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a benchmark, completed by its defaults; what does not fit is refused."""
    load = find_benchmark(name).load
    hints = _hints(load)
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(load).parameters.items()
        if key not in _GIVEN and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    for key, value in options.items():
        if key not in defaults:
            raise ValueError(f"{key} is not an option of {name!r}; its options are {[*defaults]}")
        with suppress(PydanticUserError):  # any value will do where pydantic does not know the type
            checked(hints.get(key, Any), value, f"{key} of {name!r}")
    complete = {**defaults, **options}
    missing = next((key for key, value in complete.items() if value is inspect.Parameter.empty), None)
    if missing is not None:
        raise ValueError(f"{name!r} needs its option {missing}; pass it")
    if is_table(name) and complete["id"] is None:
        del complete["id"]  # runs from before there was this option go on
    return complete


def import_path(path: str, what: str) -> Any:
    """What `package.module:name` names; modules of the current folder are found too."""
    module, _, attribute = path.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module) if module else None
    except ModuleNotFoundError as error:
        raise ValueError(f"{what} {path!r} cannot be imported: there is no module {error.name}") from error
    if imported is None or not hasattr(imported, attribute):
        raise ValueError(
            f"{what} {path!r} cannot be imported: {module!r} has no {attribute!r}; write package.module:name"
        )
    return getattr(imported, attribute)


def _hints(load: Any) -> dict[str, Any]:
    try:
        return get_type_hints(load)
    except (NameError, TypeError):  # names that only type checkers see, or an object that is not a plain function
        return {}


def check_benchmark(benchmark: Benchmark) -> None:
    """Refuses, in one sentence, what would fail later or train on nonsense."""
    tasks = [task.name for task in benchmark.tasks]
    if not tasks:
        raise ValueError(f"benchmark {benchmark.name!r} has no tasks; give it at least one")
    often, count = Counter(tasks).most_common(1)[0]
    if count > 1:
        raise ValueError(f"benchmark {benchmark.name!r} has {count} tasks named {often!r}; names must differ")
    # Heads are kept in a ModuleDict, which does not take these.
    heads = nn.ModuleDict()
    bad = next((name for name in tasks if not name or "." in name or "/" in name or hasattr(heads, name)), None)
    if bad is not None:
        raise ValueError(
            f"task {bad!r} of {benchmark.name!r} has a name with a dot or a slash, or one that torch needs itself "
            "(such as 'type' or 'keys'); rename it"
        )
    unknown = next((name for name in benchmark.noisy_tasks if name not in tasks), None)
    if unknown is not None:
        raise ValueError(f"noisy_tasks of {benchmark.name!r} names {unknown!r}; its tasks are {tasks}")
    if benchmark.augment is not None and isinstance(benchmark.train.inputs, Mapping):
        raise ValueError(f"{benchmark.name!r} has inputs of their own for its tasks, which augment cannot take")
    for part in ("train", "validation", "test"):
        _check_split(benchmark, getattr(benchmark, part), part)


def _check_split(benchmark: Benchmark, split: Split, part: str) -> None:
    # Imported where it is used: a sweep looks benchmarks up and leaves their data to its workers.
    from excessmtl.lab.data.kinds import binary, classification

    where = f"the {part} split of {benchmark.name!r}"
    for task in benchmark.tasks:
        if task.name not in split.targets:
            raise ValueError(f"{where} has no targets for task {task.name!r}; it has {sorted(split.targets)}")
        target = split.targets[task.name]
        inputs = split.inputs[task.name] if isinstance(split.inputs, Mapping) else split.inputs
        if len(target) != len(inputs):  # type: ignore[arg-type]
            raise ValueError(f"{where} has {len(inputs)} inputs and {len(target)} targets for task {task.name!r}")  # type: ignore[arg-type]
        labels = known(target)
        if not len(labels) and (part != "validation" or len(target)):
            raise ValueError(f"{where} has no label for task {task.name!r}; every task needs some")
        classes = {classification.loss: task.outputs, binary.loss: 2}.get(task.kind.loss)
        if classes is not None and len(labels) and not 0 <= labels.min() <= labels.max() <= classes - 1:
            raise ValueError(
                f"task {task.name!r} in {where} has classes from {labels.min().item():g} to {labels.max().item():g}; "
                f"with {classes} they are 0 to {classes - 1}"
            )
