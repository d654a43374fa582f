"""A study: benchmarks x methods x noise levels x seeds, written down in a small YAML file.

```yaml
name: digits                    # default: the name of the file
benchmarks:
  - simulated-arm               # a name, or a mapping with fields of a run that belong to data and recipe
  - {benchmark: sarcos, data: data/sarcos_inv_test.mat, epochs: 60}
methods:
  - uniform                     # a name, or a mapping with options and the label that tables show
  - {method: excess, options: {estimator: paper}, label: excess (paper)}
  - {method: excess, options: {estimator: paper, step_size: {grid: [0.001, 0.01]}}}    # one method for each value
noise: [0, 0.4, 0.8]            # default: 0
seeds: 5                        # 0 to 4, or a list; default: 1
settings: {epochs: 30}          # fields of every run; a benchmark's own go before
tune: {learning_rate: [0.001, 0.003]}    # tried for each method before the study (`tuning`); default: nothing
tune_seeds: 1                   # how many seeds to try them on, or a list; default: 1
```

A benchmark may stand there several times with other `noise_kind`, `noisy_tasks` or `optimiser`, and may have `noise`
and `seeds` of its own.
"""

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, BaseModel, Field, create_model

from excessmtl.lab.data.find import find_benchmark
from excessmtl.lab.runs.config import RunConfig, Seed, Share
from excessmtl.lab.schema import STRICT, Options, checked
from excessmtl.lab.studies.folders import folder_of
from excessmtl.lab.studies.strict_yaml import read_yaml
from excessmtl.lab.studies.tuning import FIRST_SEED, TUNABLE, Tune
from excessmtl.lab.training.learner import check_method

__all__ = ["Study", "expand", "folder_of", "read_study"]

_APART = ("noise_kind", "noisy_tasks", "optimiser")
"""Tables tell two entries of one benchmark apart by these."""
_METHOD = ("method", "options", "loss", "label")
_VARIED = (*_METHOD, "seed", "noise")
"""What the study itself varies."""
_ALONE = ("devices", "strategy")
"""A run over several devices starts processes of its own, which a worker of a sweep cannot."""
_RECIPE = tuple(field.name for field in fields(RunConfig) if field.name not in (*_VARIED, *_ALONE))
_SETTINGS = tuple(name for name in _RECIPE if name not in ("benchmark", "benchmark_options", "data"))
_HINTS: dict[str, Any] = get_type_hints(RunConfig, include_extras=True)
_MOST_RUNS = 100_000


def _folder_name(name: str) -> str:
    if not name.strip(". ") or set(name) & set("/\\:\0"):
        raise ValueError(f"name must be a plain name without / or \\ (it names a folder), found {name!r}")
    return name


Levels = Annotated[list[Share], Field(min_length=1)]
Entries = Annotated[list[Any], Field(min_length=1)]


class StudyFile(BaseModel):
    """The keys of a study."""

    model_config = STRICT

    name: Annotated[str, AfterValidator(_folder_name)]
    benchmarks: Entries
    methods: Entries
    noise: Levels = [0.0]
    seeds: Any = 1
    settings: Any = {}
    tune: Any = None
    tune_seeds: Any = None


def _model(names: Iterable[str], required: str | None = None, **more: Any) -> type[BaseModel]:
    """A mapping that may have these fields of a run."""
    parts = {name: (_HINTS[name], ... if name == required else None) for name in names}
    return create_model("Entry", __config__=STRICT, **parts, **more)  # type: ignore[call-overload,no-any-return]


_Settings = _model(_SETTINGS)
_BenchmarkEntry = _model(_RECIPE, "benchmark", noise=(Levels | None, None), seeds=(Any, None))
_MethodEntry = _model(_METHOD, "method")
_Tuned = _model((), **{name: (list[_HINTS[name]], Field(None, min_length=1)) for name in TUNABLE})  # type: ignore

Fields = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """Runs that answer one question together."""

    name: str
    runs: tuple[RunConfig, ...]
    tune: Tune | None = None
    """What to try first; `runs` are then to be completed by what it chooses."""


def read_study(path: Path) -> Study:
    """The study in a YAML file; a mistake in it is one sentence that names the file and the key."""
    plain = read_yaml(path)
    try:
        return expand(plain, path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def expand(plain: Any, name: str) -> Study:
    """Every run of a study that is given as plain values; `name` is used where it does not name itself."""
    content = checked(StudyFile, {"name": name, **plain} if isinstance(plain, Mapping) else plain, "a study")
    settings = _fields(_Settings, content.settings, "settings")
    _each_once(content.noise, "noise", "keep one")
    seeds = _seeds(content.seeds, "seeds")
    benchmarks = [_benchmark(entry, content.noise, seeds) for entry in content.benchmarks]
    # Tables know a benchmark by its name and a method by its label: two of the same would be mixed up.
    names = [_told_apart(entry.fields) for entry in benchmarks]
    _each_once(names, "benchmarks", f"give the second another {', '.join(_APART)}, or a study of its own")
    methods = [method for entry in content.methods for method in _methods(entry)]
    for method in methods:
        check_method(method["method"])
    labels = [RunConfig(benchmarks[0].fields["benchmark"], **method).name for method in methods]
    _each_once(labels, "methods", "give one of them another `label`")
    tune = _tune(content)
    count = len(methods) * sum(len(entry.noise) * len(entry.seeds) for entry in benchmarks)
    if tune is not None:
        count += len(methods) * len(tune.points) * len(tune.seeds) * sum(len(entry.noise) for entry in benchmarks)
    if count > _MOST_RUNS:
        raise ValueError(f"the study has {count} runs, more than {_MOST_RUNS}; give fewer seeds, levels or methods")
    runs = tuple(
        RunConfig(**{**settings, **entry.fields, **method, "noise": float(level), "seed": seed})
        for entry in benchmarks
        for level, method, seed in itertools.product(entry.noise, methods, entry.seeds)
    )
    return Study(content.name, runs, tune)


@dataclass(frozen=True)
class _Benchmark:
    """An entry of the benchmarks: fields of its runs, and what is varied on it."""

    fields: Fields
    noise: Sequence[float]
    seeds: Sequence[int]


def _benchmark(entry: Any, noise: Sequence[float], seeds: Sequence[int]) -> _Benchmark:
    own = _fields(_BenchmarkEntry, {"benchmark": entry} if isinstance(entry, str) else entry, "an entry of benchmarks")
    find_benchmark(own["benchmark"])
    levels, numbers = own.pop("noise", None), own.pop("seeds", None)
    _each_once(levels or (), "noise", "keep one")
    return _Benchmark(own, levels or noise, seeds if numbers is None else _seeds(numbers, "seeds"))


def _told_apart(entry: Fields) -> str:
    return " ".join(str(entry[name]) for name in ("benchmark", *_APART) if name in entry)


def _tune(content: StudyFile) -> Tune | None:
    """What a study tries before its runs."""
    if content.tune is None:
        if content.tune_seeds is not None:
            raise ValueError("tune_seeds is given, but nothing to tune; name the values under `tune`")
        return None
    values = _fields(_Tuned, content.tune, "tune")
    if not values:
        raise ValueError(f"tune must name values to try, for any of {', '.join(TUNABLE)}; found none")
    for name, own in values.items():
        _each_once(own, name, "keep one")
    seeds = 1 if content.tune_seeds is None else content.tune_seeds
    first = FIRST_SEED if isinstance(seeds, int) else 0
    return Tune(values, [first + seed for seed in _seeds(seeds, "tune_seeds")])


def _seeds(plain: Any, key: str) -> Sequence[int]:
    """A number of them, or a list."""
    if isinstance(plain, int) and not isinstance(plain, bool):
        if not 1 <= plain <= _MOST_RUNS:
            most = f"at least 1, found {plain}" if plain < 1 else f"at most {_MOST_RUNS}, found {plain}"
            raise ValueError(f"{key} must be {most}; it is how many there are, or a list of them")
        return range(plain)
    seeds: list[int] = checked(Annotated[list[Seed], Field(min_length=1)], plain, key)  # type: ignore[arg-type]
    _each_once(seeds, key, "keep one")
    return seeds


def _methods(entry: Any) -> list[Fields]:
    """One method for every combination of the values in the grids of its options."""
    own = _fields(_MethodEntry, {"method": entry} if isinstance(entry, str) else entry, "an entry of methods")
    options: Options = own.get("options", {})
    grids: dict[str, list[Any]] = {
        name: checked(Entries, value["grid"], "grid")
        for name, value in options.items()
        if isinstance(value, Mapping) and list(value) == ["grid"]
    }
    if not grids:
        return [own]
    if math.prod(map(len, grids.values())) > _MOST_RUNS:
        raise ValueError(f"the grids of {own['method']} have more than {_MOST_RUNS} points; give fewer values")
    variants = []
    for values in itertools.product(*grids.values()):
        point = dict(zip(grids, values, strict=True))
        variants.append({**own, "options": {**options, **point}})
        if "label" in own:
            variants[-1]["label"] = " ".join([own["label"], *(f"{name}={value}" for name, value in point.items())])
    return variants


def _fields(schema: type[BaseModel], plain: Any, where: str) -> Fields:
    """What the mapping says, checked."""
    model = checked(schema, plain, where)
    return {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}


def _each_once(values: Sequence[Hashable], key: str, advice: str) -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"{key} has {twice[0]!r} twice; {advice}")
