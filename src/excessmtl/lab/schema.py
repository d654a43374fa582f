"""Plain values from YAML, JSON or Python, checked by pydantic: a mistake is one sentence with the key and the value."""

import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import ConfigDict, Field, Strict, StringConstraints, TypeAdapter, ValidationError, WrapValidator

Schema = TypeVar("Schema")
STRICT = ConfigDict(strict=True, extra="forbid")
"""A text is no number, 1 is not `true`, and a key that nobody would read is a mistake."""


def _as_given(value: Any, check: Callable[[Any], Any]) -> Any:
    check(value)
    return value


Word = Annotated[str, StringConstraints(pattern=r"\S")]
Number = Annotated[float, Field(allow_inf_nan=False), WrapValidator(_as_given)]
"""Finite; a whole number stays one, so that a folder named after it keeps its name."""
Names = Annotated[tuple[Word, ...], Strict(False)]
"""A list in a file, a tuple in Python."""
Options = dict[Word, Any]

_WORDS = {
    "bool_type": "true or false",
    "dict_type": "a mapping (name: value)",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "one of {expected}",
    "model_type": "a mapping (key: value)",
    "string_pattern_mismatch": "a word or a text in quotes",
    "string_type": "a word or a text in quotes",
    "too_short": "a list with at least one entry",
    "tuple_type": "a list of names",
}
"""Pydantic's types of errors, as what a value must be."""
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def checked(schema: type[Schema], value: Any, where: str) -> Schema:
    """`value` as `schema` describes it; `where` stands for the value as a whole in the sentence about a mistake."""
    keys = list(getattr(schema, "model_fields", ()))
    try:  # a model says itself how strict it is
        return TypeAdapter(schema).validate_python(value, strict=None if keys else True)
    except ValidationError as error:
        raise ValueError(sentence(error, where, keys)) from None


def sentence(error: ValidationError, where: str, keys: Sequence[str] = ()) -> str:
    """The first mistake; `keys` are those that `where` may have."""
    first = error.errors(include_url=False)[0]
    kind, place, context = first["type"], first["loc"], first.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    key = str(place[0]) if place else where
    if place and isinstance(place[0], int):  # a value of a list, or an argument without its name
        key = keys[place[0]] if keys else where
    elif place and not keys:
        key = f"{place[0]} of {where}"
    elif len(place) > 1 and isinstance(place[1], str):  # a value of a mapping
        key = f"{place[1]} of {place[0]}"
    if kind in _UNKNOWN:
        return f"{key} is not a key of {where}; the keys are {', '.join(keys)}"
    if kind == "missing":
        return f"{key} is missing in {where}; give it"
    words = _WORDS.get(kind)
    must = first["msg"].replace("Input should be ", "") if words is None else words.format(**context)
    return f"{key} must be {must}, found {shortened(first['input'])}"


def in_sentences(where: str) -> Callable[[type[Schema]], type[Schema]]:
    """Decorates a pydantic dataclass: what its constructor refuses is a `ValueError` of one sentence."""

    def decorate(schema: type[Schema]) -> type[Schema]:
        original: Any = schema.__init__
        keys = list(schema.__dataclass_fields__)  # type: ignore[attr-defined]

        @wraps(original)
        def init(self: Any, *args: Any, **values: Any) -> None:
            try:
                original(self, *args, **values)
            except ValidationError as error:
                raise ValueError(sentence(error, where, keys)) from None

        schema.__init__ = init  # type: ignore[method-assign]
        return schema

    return decorate


@contextmanager
def explained(what: str, advice: str, *errors: type[Exception]) -> Iterator[None]:
    """Such an error in the block becomes a `ValueError` of one sentence, `what (reason); advice`."""
    try:
        yield
    except errors as error:
        reason = " ".join(str(error).split())[:300]
        named = reason if reason and isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {reason}"
        raise ValueError(f"{what} ({named}); {advice}") from error


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """`value`, if it is a mapping."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be a mapping (key: value), found {shortened(value)}")
    return value


def shortened(value: Any, most: int = 80) -> str:
    """The value as Python writes it, at most so many characters: a damaged file may hold anything."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother = 2, most - 20, most - 20
    short.maxdict = short.maxlist = most // 4
    return short.repr(value)[:most]


class _Loader(yaml.SafeLoader):
    """YAML as people mean it: 1e-3 is a number, a key given twice is a mistake, and there are no aliases."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # A few nested aliases stand for billions of values, which every check would look at.
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise ValueError(f"*{event.anchor} (line {event.start_mark.line + 1}) is an alias; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} stands there twice (line {node.start_mark.line + 1} and after); keep one")
        return super().construct_mapping(node, deep)


# PyYAML follows YAML 1.1, where a number with an exponent needs a dot: 1e-3 would be a word.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"), list("-+0123456789")
)


def yaml_value(text: str) -> Any:
    """A text as plain values."""
    return yaml.load(text, _Loader)  # a SafeLoader


def read_yaml(path: Path) -> Any:
    """The content of a YAML file as plain values; what cannot be read is one sentence that names the file."""
    mistakes = (yaml.YAMLError, ValueError, RecursionError)
    with explained(f"{path} cannot be read as YAML", "texts with brackets need quotes", *mistakes):
        return yaml_value(path.read_text(encoding="utf-8"))
