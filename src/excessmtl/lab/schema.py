"""Plain values from YAML, JSON or Python, checked by pydantic: a mistake is one sentence with the key and the value."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, TypeVar

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
