"""A study: benchmarks x methods x noise levels x seeds, written down in a small YAML file.

docs/studies.md has all keys. A benchmark may stand there several times with other `noise_kind`, `noisy_tasks` or
`optimiser`, and may have `noise` and `seeds` of its own.

Learning rate and the like may be tuned for each method: first a sweep that tries them, then the study at the choice.
For each benchmark, method and noise level, every combination of the values is trained on the tuning seeds. The one with
the lowest mean validation error is taken (`validation_error` of summary.json, after the last epoch). Validation labels
are as noisy as the training labels, in the tuning runs and in those of the study: nobody who needs a robust method has
others.
"""

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, get_type_hints

import pandas as pd
from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, WrapValidator, create_model

from excessmtl.lab.data.find import check_known
from excessmtl.lab.runs.config import RunConfig, Seed, Share, check_method
from excessmtl.lab.runs.folder import RunFolder, folder_of
from excessmtl.lab.schema import STRICT, checked, read_yaml

__all__ = ["Study", "expand", "folder_of", "read_study"]

TUNABLE = ("learning_rate", "weight_decay", "batch_size", "schedule", "warmup_steps")
"""Fields of a run that a study may tune; the others change what is compared."""
FIRST_SEED = 1000
"""Of the tuning runs where a study says only how many: no seed both chooses and counts."""
_PACKAGE = Path(__file__).parents[2]
_APART = ("noise_kind", "noisy_tasks", "optimiser")
"""Tables tell two entries of one benchmark apart by these."""
_METHOD = ("method", "options", "loss", "label")
_VARIED = (*_METHOD, "seed", "noise")
"""What the study itself varies."""
_ALONE = ("devices",)
"""A run over several devices starts processes of its own, which a worker of a sweep cannot."""
_RECIPE = tuple(field.name for field in fields(RunConfig) if field.name not in (*_VARIED, *_ALONE))
_SETTINGS = tuple(name for name in _RECIPE if name not in ("benchmark", "benchmark_options", "data"))
_HINTS: dict[str, Any] = get_type_hints(RunConfig, include_extras=True)
_MOST_RUNS = 100_000


def _folder_name(name: str) -> str:
    if not name.strip(". ") or set(name) & set("/\\:\0"):
        raise ValueError(f"name must be a plain name without / or \\ (it names a folder), found {name!r}")
    return name


def _each_once(values: Sequence[Hashable], key: str, advice: str = "keep one") -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"{key} has {twice[0]!r} twice; {advice}")


def _different(values: list[Any], info: ValidationInfo) -> list[Any]:
    _each_once(values, str(info.field_name))
    return values


def _counted(plain: Any, check: Any, info: ValidationInfo) -> Sequence[int]:
    """How many seeds there are, or a list of them."""
    if not isinstance(plain, int) or isinstance(plain, bool):
        seeds: list[int] = check(plain)
        return seeds
    if not 1 <= plain <= _MOST_RUNS:
        limit = "at least 1" if plain < 1 else f"at most {_MOST_RUNS}"
        raise ValueError(f"{info.field_name} must be {limit}, found {plain}; it is how many there are, or a list")
    return range(FIRST_SEED, FIRST_SEED + plain) if info.field_name == "tune_seeds" else range(plain)


Entries = Annotated[list[Any], Field(min_length=1)]
Levels = Annotated[list[Share], Field(min_length=1), AfterValidator(_different)]
Seeds = Annotated[list[Seed], Field(min_length=1), AfterValidator(_different), WrapValidator(_counted)]


class StudyFile(BaseModel):
    """The keys of a study."""

    model_config = STRICT

    name: Annotated[str, AfterValidator(_folder_name)]
    benchmarks: Entries
    methods: Entries
    noise: Levels = [0.0]
    seeds: Seeds = [0]
    settings: Any = {}
    tune: Any = None
    tune_seeds: Seeds | None = None


def _model(names: Iterable[str], required: str | None = None, **more: Any) -> type[BaseModel]:
    """A mapping that may have these fields of a run."""
    parts = {name: (_HINTS[name], ... if name == required else None) for name in names}
    return create_model("Entry", __config__=STRICT, **parts, **more)  # type: ignore[call-overload,no-any-return]


_Settings = _model(_SETTINGS)
_BenchmarkEntry = _model(_RECIPE, "benchmark", noise=(Levels, None), seeds=(Seeds, None))
_MethodEntry = _model(_METHOD, "method")
_DIFFERENT = (Field(min_length=1), AfterValidator(_different))
_Tried: Any = {name: (Annotated[list[_HINTS[name]], *_DIFFERENT], None) for name in TUNABLE}  # type: ignore[valid-type]
_Tuned = _model((), **_Tried)

Fields = dict[str, Any]


@dataclass(frozen=True)
class Tune:
    """What is tried before a study: every combination of `values`, on each of `seeds`."""

    values: Mapping[str, Sequence[Any]]
    seeds: Sequence[int]

    @property
    def points(self) -> list[dict[str, Any]]:
        """All combinations, in the order of the values."""
        return [dict(zip(self.values, point, strict=True)) for point in itertools.product(*self.values.values())]

    def runs(self, runs: Sequence[RunConfig]) -> list[RunConfig]:
        """The tuning runs for these runs of a study."""
        return [run for config in _groups(runs).values() for point in self.points for run in self._tries(config, point)]

    def _tries(self, config: RunConfig, point: Mapping[str, Any]) -> list[RunConfig]:
        return [replace(config, **point, seed=seed, noisy_validation=True) for seed in self.seeds]

    def choose(self, runs: Sequence[RunConfig], folder: Path) -> tuple[tuple[RunConfig, ...], pd.DataFrame]:
        """The runs of a study at the values that the tuning runs in `folder` choose, and a table of all values tried.

        Values some of whose runs have not finished are not chosen; runs without any choice are left out.
        """
        table, chosen = [], {}
        for place, config in _groups(runs).items():
            errors = [fmean(_error(folder / folder_of(run)) for run in self._tries(config, p)) for p in self.points]
            known = [number for number, error in enumerate(errors) if not math.isnan(error)]
            best = min(known, key=lambda number: errors[number]) if known else None
            for number, point in enumerate(self.points):
                row = {"benchmark": config.benchmark, "noise_kind": config.noise_kind, "label": config.name}
                row |= {"noise": config.noise, "noisy_tasks": " ".join(config.noisy_tasks or ()), **point}
                row |= {"validation_error": errors[number], "seeds": len(self.seeds), "chosen": number == best}
                table.append(row)
            if best is not None:
                chosen[place] = self.points[best]
        if math.inf in (found := [row["validation_error"] for row in table]) and not any(map(math.isfinite, found)):
            raise ValueError("tune: no run has a finite validation error; add validation samples, or smaller rates")
        places = [(run, _place(run)) for run in runs]
        made = [replace(run, **chosen[place], noisy_validation=True) for run, place in places if place in chosen]
        return tuple(made), pd.DataFrame(table)


@dataclass(frozen=True)
class Study:
    """Runs that answer one question together."""

    name: str
    runs: tuple[RunConfig, ...]
    tune: Tune | None = None
    """What to try first; `runs` are then to be completed by what it chooses."""


def read_study(path: Path) -> Study:
    """The study in a YAML file, or the one of that name that comes with the package.

    A mistake in it is one sentence that names the file and the key.
    """
    if not path.suffix and not path.exists():
        names = _bundled_studies()
        if path.as_posix() not in names:
            raise ValueError(
                f"there is no file {path}, and no study of that name comes with the package; those are {list(names)}"
            )
        path = names[path.as_posix()]
    plain = read_yaml(path)
    try:
        return expand(plain, path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _bundled_studies() -> dict[str, Path]:
    """The studies that come with the package, by name: `demo`, `results/sarcos`, ..."""
    installed = _PACKAGE / "studies"
    folder = installed if installed.is_dir() else _PACKAGE.parents[1] / "studies"  # a checkout has them at its root
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}


def expand(plain: Any, name: str) -> Study:
    """Every run of a study that is given as plain values; `name` is used where it does not name itself."""
    content = checked(StudyFile, {"name": name, **plain} if isinstance(plain, Mapping) else plain, "a study")
    settings = _fields(_Settings, content.settings, "settings")
    benchmarks = [_benchmark(entry) for entry in content.benchmarks]
    levels = [entry.pop("noise", content.noise) for entry in benchmarks]
    seeds = [entry.pop("seeds", content.seeds) for entry in benchmarks]
    # Tables know a benchmark by its name and a method by its label: two of the same would be mixed up.
    names = [" ".join(str(entry[key]) for key in ("benchmark", *_APART) if key in entry) for entry in benchmarks]
    _each_once(names, "benchmarks", f"give the second another {', '.join(_APART)}, or a study of its own")
    methods = [method for entry in content.methods for method in _methods(entry)]
    for method in methods:
        check_method(method["method"])
    labels = [RunConfig(benchmarks[0]["benchmark"], **method).name for method in methods]
    _each_once(labels, "methods", "give one of them another `label`")
    tune = _tune(content)
    tries = 0 if tune is None else len(tune.points) * len(tune.seeds)
    count = len(methods) * sum(len(own) * (len(numbers) + tries) for own, numbers in zip(levels, seeds, strict=True))
    if count > _MOST_RUNS:
        raise ValueError(f"the study has {count} runs, more than {_MOST_RUNS}; give fewer seeds, levels or methods")
    runs = tuple(
        RunConfig(**{**settings, **entry, **method, "noise": float(level), "seed": seed})
        for entry, own, numbers in zip(benchmarks, levels, seeds, strict=True)
        for level, method, seed in itertools.product(own, methods, numbers)
    )
    return Study(content.name, runs, tune)


def _benchmark(entry: Any) -> Fields:
    own = _fields(_BenchmarkEntry, {"benchmark": entry} if isinstance(entry, str) else entry, "an entry of benchmarks")
    check_known(own["benchmark"])
    return own


def _tune(content: StudyFile) -> Tune | None:
    """What a study tries before its runs."""
    if content.tune is None:
        if content.tune_seeds is not None:
            raise ValueError("tune_seeds is given, but nothing to tune; name the values under `tune`")
        return None
    values = _fields(_Tuned, content.tune, "tune")
    if not values:
        raise ValueError(f"tune must name values to try, for any of {', '.join(TUNABLE)}; found none")
    return Tune(values, [FIRST_SEED] if content.tune_seeds is None else content.tune_seeds)


def _methods(entry: Any) -> list[Fields]:
    """One method for every combination of the values in the grids of its options."""
    own = _fields(_MethodEntry, {"method": entry} if isinstance(entry, str) else entry, "an entry of methods")
    options: Fields = own.get("options", {})
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


def _place(config: RunConfig) -> Path:
    """What the runs of all seeds have in common."""
    return folder_of(config).parent


def _groups(runs: Sequence[RunConfig]) -> dict[Path, RunConfig]:
    """The first of the runs that differ in their seed alone."""
    groups: dict[Path, RunConfig] = {}
    for config in runs:
        groups.setdefault(_place(config), config)
    return groups


def _error(folder: Path) -> float:
    """The validation error of a finished run; infinite if it has diverged, NaN if it has not finished."""
    summary = RunFolder(folder).summary
    if summary is None:
        return math.nan
    error = summary.get("validation_error")
    return math.inf if error is None else float(error)
