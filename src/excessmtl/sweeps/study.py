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
```
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from excessmtl.benchmarks.find import find_benchmark
from excessmtl.plain import (
    FLAG,
    NAMES,
    NUMBER,
    OPTIONS,
    TEXT,
    WHOLE,
    Kind,
    each_once,
    known_keys,
    mapping,
    nonempty_list,
)
from excessmtl.sweeps.folders import folder_of
from excessmtl.sweeps.strict_yaml import read_yaml
from excessmtl.training.balancers import check_method
from excessmtl.training.config import RunConfig

__all__ = ["FIELDS", "Study", "expand", "folder_of", "read_study"]

_KINDS = {str: TEXT, int: WHOLE, float: NUMBER, bool: FLAG, Mapping[str, Any]: OPTIONS, tuple[str, ...]: NAMES}
FIELDS: Mapping[str, Kind] = {
    field.name: kind
    for field in fields(RunConfig)
    for type_, kind in _KINDS.items()
    if field.type in (type_, type_ | None)
}
"""The fields of `RunConfig` as a file may state them; it checks their ranges itself."""
_KEYS = ("name", "benchmarks", "methods", "noise", "seeds", "settings")
_METHOD = ("method", "options", "label")
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
    benchmarks = [_entry(entry, "benchmark", _RECIPE) for entry in nonempty_list(content, "benchmarks")]
    # Tables know a benchmark by its name and a method by its label: two of the same would be mixed up.
    each_once([entry["benchmark"] for entry in benchmarks], "benchmarks", "put the second into a study of its own")
    for entry in benchmarks:
        find_benchmark(entry["benchmark"])
    methods = [method for entry in nonempty_list(content, "methods") for method in _methods(entry)]
    for method in methods:
        check_method(method["method"])
    labels = [RunConfig(benchmarks[0]["benchmark"], **method).name for method in methods]
    each_once(labels, "methods", "give one of them another `label`")
    levels = [FIELDS["noise"].checked(level, "noise") for level in nonempty_list(content, "noise", [0.0])]
    each_once(levels, "noise", "keep one")
    seeds = _seeds(content.get("seeds", 1))
    count = len(benchmarks) * len(levels) * len(methods) * len(seeds)
    if count > _MOST_RUNS:
        raise ValueError(f"the study has {count} runs, more than {_MOST_RUNS}; give fewer seeds, levels or methods")
    combinations = itertools.product(benchmarks, levels, methods, seeds)
    runs = tuple(
        RunConfig(**{**settings, **benchmark, **method, "noise": float(noise), "seed": seed})
        for benchmark, noise, method, seed in combinations
    )
    return Study(_NAME.checked(content.get("name", name), "name"), runs)


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
