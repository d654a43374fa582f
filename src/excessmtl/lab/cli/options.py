"""The fields of a run as options of a command, made from `RunConfig`: their types, defaults and help."""

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
import yaml

from excessmtl.lab.cli.terminal import names_in
from excessmtl.lab.runs.config import DATA, Help, RunConfig

_BENCHMARK = typer.Argument(
    help="A benchmark (`excessmtl benchmarks` lists them), a .csv, .csv.gz or .parquet file, or a function of yours as "
    "package.module:function."
)
_TABLE: dict[str, tuple[Any, Any, Help]] = {
    "targets": (str | None, None, Help("Of a table: the columns to predict, comma-separated.", DATA)),
    "kind": (
        list[str],
        [],
        Help("Of a table: target=regression, classification or binary; repeat. Default: inferred.", DATA),
    ),
    "id": (str | None, None, Help("Of a table: the column that names its rows, no input.", DATA)),
}
"""Options of a benchmark that is a table; they stand after its data."""
Command = Callable[..., None]


def takes_a_run(names: Sequence[str] | None = None) -> Callable[[Command], Command]:
    """The command, whose first argument is a `RunConfig`, with an option for each of these fields; None: for all."""

    def decorate(command: Command) -> Command:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @wraps(command)
        def wrapped(**values: Any) -> None:
            mine = {parameter.name: values.pop(parameter.name) for parameter in own}
            command(_config(values), **mine)

        keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        parameters = [_parameter("benchmark", str, _BENCHMARK), *_run_options(names), *keyword]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return wrapped

    return decorate


def _run_options(names: Sequence[str] | None) -> list[inspect.Parameter]:
    hints = get_type_hints(RunConfig, include_extras=True)
    options: list[inspect.Parameter] = []
    for field in fields(RunConfig):
        told = next((part for part in get_args(hints[field.name]) if isinstance(part, Help)), None)
        if told is None or (names is not None and field.name not in names):
            continue
        kind = _typed(hints[field.name])
        default = [] if kind == list[str] else None if field.default is MISSING else field.default
        name = field.name.removesuffix("s") if kind == list[str] else field.name
        options.append(_option(name, kind, default, told))
        if name == "data":
            options += [_option(name, *rest) for name, rest in _TABLE.items()]
    return options


def _typed(hint: Any) -> Any:
    """The type of a field as a command line has it: texts for words and names, `name=value` for mappings."""
    if get_origin(hint) is Annotated:
        return _typed(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        inner = _typed(next(part for part in get_args(hint) if part is not types.NoneType))
        return inner if inner == list[str] else inner | None
    if get_origin(hint) is dict:
        return list[str]
    return str if get_origin(hint) in (Literal, tuple) else hint


def _option(name: str, kind: Any, default: Any, told: Help) -> inspect.Parameter:
    panel = None if told.panel == "Options" else told.panel
    return _parameter(name, kind, typer.Option(help=told.text, rich_help_panel=panel), default)


def _parameter(name: str, kind: Any, info: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=Annotated[kind, info])


def _config(values: dict[str, Any]) -> RunConfig:
    """The run that these options describe."""
    given = dict(values)
    of_a_table = _of_a_table(*(given.pop(name) for name in _TABLE))
    for name in ("options", "benchmark_options", "optimiser_options"):
        if name.removesuffix("s") in given:
            option = name.removesuffix("s")
            given[name] = _pairs(f"--{option.replace('_', '-')}", given.pop(option))
    given["benchmark_options"] |= of_a_table
    given["optimiser_options"] = given.get("optimiser_options") or None
    if given["noisy_tasks"] is not None:
        given["noisy_tasks"] = tuple(names_in(given["noisy_tasks"]))
    return RunConfig(**given)


def _pairs(argument: str, values: list[str]) -> dict[str, Any]:
    """`k=v` options, values read as YAML (numbers, booleans, lists)."""
    pairs = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise ValueError(f"{argument} must look like name=value, found {value!r}")
        try:
            pairs[name.replace("-", "_")] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{argument} {value!r}: the value is neither a word, a number nor a list") from error
    return pairs


def kinds_in(values: Sequence[str]) -> dict[str, str]:
    """Target -> kind, from `target=kind`; a column may be called anything."""
    kinds = {}
    for value in values:
        name, equals, word = value.rpartition("=")
        if not equals or not name:
            raise ValueError(f"--kind must look like target=kind, found {value!r}")
        kinds[name.strip()] = word.strip()
    return kinds


def _of_a_table(targets: str | None, kind: list[str], id: str | None) -> dict[str, Any]:
    """The options of a table; a column may be called anything."""
    names = None if targets is None else names_in(targets)
    options = {"targets": names, "kinds": kinds_in(kind) or None, "id": id}
    return {name: value for name, value in options.items() if value is not None}
