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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from excessmtl.lab.data.find import find_benchmark
from excessmtl.lab.studies.folders import folder_of
from excessmtl.lab.studies.strict_yaml import read_yaml
from excessmtl.lab.studies.tuning import FIRST_SEED, TUNABLE, Tune
from excessmtl.lab.training.balancers import check_method
from excessmtl.lab.training.config import FIELDS, RunConfig
from excessmtl.plain import TEXT, Kind, each_once, known_keys, mapping, nonempty_list

__all__ = ["FIELDS", "Study", "expand", "folder_of", "read_study"]

_KEYS = ("name", "benchmarks", "methods", "noise", "seeds", "settings", "tune", "tune_seeds")
_APART = ("noise_kind", "noisy_tasks", "optimiser")
"""Tables tell two entries of one benchmark apart by these."""
_METHOD = ("method", "options", "loss", "label")
_VARIED = (*_METHOD, "seed", "noise")
"""What the study itself varies."""
_ALONE = ("devices", "strategy")
"""A run over several devices starts processes of its own, which a worker of a sweep cannot."""
_RECIPE = tuple(field.name for field in fields(RunConfig) if field.name not in (*_VARIED, *_ALONE))
_SETTINGS = tuple(name for name in _RECIPE if name not in ("benchmark", "benchmark_options", "data"))

_MOST_RUNS = 100_000
_NAME = Kind(
    "a plain name without / or \\ (it names a folder)",
    lambda value: TEXT.fits(value) and value.strip(". ") != "" and not set(value) & set("/\\:\0"),
)

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
    content = mapping(plain, "a study")
    known_keys(content, _KEYS, "a study")
    settings = _fields(content.get("settings", {}), _SETTINGS, "settings")
    noise, seeds = _levels(content), _seeds(content.get("seeds", 1))
    benchmarks = [_benchmark(entry, noise, seeds) for entry in nonempty_list(content, "benchmarks")]
    # Tables know a benchmark by its name and a method by its label: two of the same would be mixed up.
    names = [_told_apart(entry.fields) for entry in benchmarks]
    each_once(names, "benchmarks", f"give the second another {', '.join(_APART)}, or a study of its own")
    methods = [method for entry in nonempty_list(content, "methods") for method in _methods(entry)]
    for method in methods:
        check_method(method["method"])
    labels = [RunConfig(benchmarks[0].fields["benchmark"], **method).name for method in methods]
    each_once(labels, "methods", "give one of them another `label`")
    tune = _tune(content)
    count = len(methods) * sum(len(entry.noise) * len(entry.seeds) for entry in benchmarks)
    if tune is not None:
        count += len(methods) * len(tune.points) * len(tune.seeds) * sum(len(entry.noise) for entry in benchmarks)
    if count > _MOST_RUNS:
        raise ValueError(f"the study has {count} runs, more than {_MOST_RUNS}; give fewer seeds, levels or methods")
    runs = tuple(
        RunConfig(**{**settings, **entry.fields, **method, "noise": level, "seed": seed})
        for entry in benchmarks
        for level, method, seed in itertools.product(entry.noise, methods, entry.seeds)
    )
    if tune is not None:
        tune.runs(runs[:1])  # refuses values that are out of range
    return Study(_NAME.checked(content.get("name", name), "name"), runs, tune)


@dataclass(frozen=True)
class _Benchmark:
    """An entry of the benchmarks: fields of its runs, and what is varied on it."""

    fields: Fields
    noise: Sequence[float]
    seeds: Sequence[int]


def _benchmark(entry: Any, noise: Sequence[float], seeds: Sequence[int]) -> _Benchmark:
    content = dict(entry) if isinstance(entry, Mapping) else {}
    own_noise = _levels({"noise": content.pop("noise")}) if "noise" in content else noise
    own_seeds = _seeds(content.pop("seeds")) if "seeds" in content else seeds
    found = _entry(content if isinstance(entry, Mapping) else entry, "benchmark", _RECIPE)
    find_benchmark(found["benchmark"])
    return _Benchmark(found, own_noise, own_seeds)


def _told_apart(entry: Fields) -> str:
    return " ".join(str(entry[name]) for name in ("benchmark", *_APART) if name in entry)


def _levels(content: Mapping[str, Any]) -> list[float]:
    levels = [float(FIELDS["noise"].checked(level, "noise")) for level in nonempty_list(content, "noise", [0.0])]
    each_once(levels, "noise", "keep one")
    return levels


def _tune(content: Mapping[str, Any]) -> Tune | None:
    """What a study tries before its runs."""
    if "tune" not in content:
        if "tune_seeds" in content:
            raise ValueError("tune_seeds is given, but nothing to tune; name the values under `tune`")
        return None
    plain = mapping(content["tune"], "tune")
    known_keys(plain, TUNABLE, "tune")
    if not plain:
        raise ValueError(f"tune must name values to try, for any of {', '.join(TUNABLE)}; found none")
    values = {name: [FIELDS[name].checked(one, name) for one in nonempty_list(plain, name)] for name in plain}
    for name, own in values.items():
        each_once(own, name, "keep one")
    seeds = content.get("tune_seeds", 1)
    counted = isinstance(seeds, int) and not isinstance(seeds, bool)
    found = _seeds(seeds)
    return Tune(values, [FIRST_SEED + seed for seed in found] if counted else found)


def _seeds(plain: Any) -> Sequence[int]:
    if isinstance(plain, int) and not isinstance(plain, bool):
        if plain < 1:
            raise ValueError(f"seeds must be at least 1, found {plain}; it is how many there are, or a list of them")
        if plain > _MOST_RUNS:
            raise ValueError(f"seeds must be at most {_MOST_RUNS}, found {plain}; it is how many there are")
        return range(plain)
    seeds = [FIELDS["seed"].checked(seed, "seeds") for seed in nonempty_list({"seeds": plain}, "seeds")]
    each_once(seeds, "seeds", "keep one")
    return seeds


def _entry(entry: Any, kind: str, allowed: Sequence[str]) -> Fields:
    """An entry of the benchmarks or methods: its name alone, or a mapping that has the name under its `kind`."""
    if isinstance(entry, str):
        return {kind: entry}
    found = _fields(entry, allowed, f"an entry of {kind}s")
    if kind not in found:
        raise ValueError(f"an entry of {kind}s must name its `{kind}`, found only {', '.join(found) or 'nothing'}")
    return found


def _methods(entry: Any) -> list[Fields]:
    """One method for every combination of the values in the grids of its options."""
    found = _entry(entry, "method", _METHOD)
    options = found.get("options", {})
    grids = {
        name: nonempty_list(value, "grid")
        for name, value in options.items()
        if isinstance(value, Mapping) and list(value) == ["grid"]
    }
    if not grids:
        return [found]
    if math.prod(map(len, grids.values())) > _MOST_RUNS:
        raise ValueError(f"the grids of {found['method']} have more than {_MOST_RUNS} points; give fewer values")
    variants = []
    for values in itertools.product(*grids.values()):
        point = dict(zip(grids, values, strict=True))
        variants.append({**found, "options": {**options, **point}})
        if "label" in found:
            variants[-1]["label"] = " ".join([found["label"], *(f"{name}={value}" for name, value in point.items())])
    return variants


def _fields(plain: Any, allowed: Sequence[str], where: str) -> Fields:
    """Fields of a run with values of their kinds, ready for `RunConfig`."""
    content = mapping(plain, where)
    known_keys(content, allowed, where)
    checked = {name: FIELDS[name].checked(value, name) for name, value in content.items()}
    if "noisy_tasks" in checked:
        checked["noisy_tasks"] = tuple(checked["noisy_tasks"])
    return checked
