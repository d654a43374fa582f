"""The fields of a run as options of a command, made from `RunConfig`: their types, defaults and help."""

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
import yaml

from excessmtl.lab.cli.app import names_in
from excessmtl.lab.runs.config import DATA, Help, RunConfig
from excessmtl.lab.schema import yaml_value

_BENCHMARK = typer.Argument(
    help="A benchmark (`excessmtl benchmarks` lists them), a .csv, .csv.gz or .parquet file, or a function of yours as "
    "package.module:function."
)
_KIND = "For a table: target=regression, classification or binary; repeat. Default: inferred."
_TABLE: dict[str, tuple[Any, Any, Help]] = {
    "targets": (str | None, None, Help("For a table: the columns to predict, comma-separated.", DATA)),
    "kind": (list[str], [], Help(_KIND, DATA)),
    "id": (str | None, None, Help("For a table: the column that identifies its rows; it is not an input.", DATA)),
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
    options: dict[str, tuple[Any, Any, Help]] = {}
    for field in fields(RunConfig):
        help = next((part for part in get_args(hints[field.name]) if isinstance(part, Help)), None)
        if help is None or (names is not None and field.name not in names):
            continue
        kind = _typed(hints[field.name])
        if kind == list[str]:  # an option that is repeated
            options[field.name.removesuffix("s")] = kind, [], help
        else:
            options[field.name] = kind, None if field.default is MISSING else field.default, help
        if field.name == "data":
            options |= _TABLE
    return [
        _parameter(name, kind, typer.Option(help=help.text, rich_help_panel=help.panel), default)
        for name, (kind, default, help) in options.items()
    ]


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


def _parameter(name: str, kind: Any, info: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=Annotated[kind, info])


def _config(given: dict[str, Any]) -> RunConfig:
    """The run that these options describe."""
    targets, kinds, id = (given.pop(name) for name in _TABLE)
    table = {"targets": None if targets is None else names_in(targets), "kinds": kinds_in(kinds) or None, "id": id}
    for name in ("options", "benchmark_options", "optimiser_options"):
        option = name.removesuffix("s")
        if option in given:
            given[name] = _pairs(f"--{option.replace('_', '-')}", given.pop(option))
    given["benchmark_options"] |= {name: value for name, value in table.items() if value is not None}
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
            pairs[name.replace("-", "_")] = yaml_value(text)
        except (yaml.YAMLError, ValueError) as error:
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
