"""Checks of plain values from YAML or JSON: a mistake is one sentence with the key, what was found and what to do."""

import reprlib
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """What a value must be, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]

    def checked(self, value: Any, key: str) -> Any:
        """The value, or a ValueError that names the key."""
        if not self.fits(value):
            raise ValueError(f"{key} must be {self.words}, found {shortened(value)}")
        return value


def shortened(value: Any, most: int = 80) -> str:
    """The value as Python writes it, at most so many characters: a damaged file may hold anything."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother = 2, most - 20, most - 20
    short.maxdict = short.maxlist = most // 4
    return short.repr(value)[:most]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return NUMBER.fits(value) and abs(value) <= sys.float_info.max


def by_task(kind: Kind) -> Kind:
    """A mapping from names, of tasks for example, to values of a kind."""
    return Kind(
        f"a mapping from names to {kind.words}",
        lambda value: isinstance(value, Mapping) and all(map(_is_text, value)) and all(map(kind.fits, value.values())),
    )


def perhaps(kind: Kind) -> Kind:
    """The kind, or nothing."""
    return Kind(f"nothing or {kind.words}", lambda value: value is None or kind.fits(value))


TEXT = Kind("a word or a text in quotes", _is_text)
WHOLE = Kind("a whole number", _is_whole)
NUMBER = Kind("a number", lambda value: _is_whole(value) or isinstance(value, float))
SCORE = Kind("a finite number or nothing", lambda value: value is None or _is_finite(value))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
OPTIONS = Kind(
    "a mapping of options (name: value)",
    lambda value: isinstance(value, Mapping) and all(_is_text(name) for name in value),
)
NAMES = Kind("a list of names", lambda value: isinstance(value, list) and all(_is_text(name) for name in value))


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """`value`, if it is a mapping."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be a mapping (key: value), found {shortened(value)}")
    return value


def known_keys(content: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    """Refuses a key that nobody would read."""
    unknown = next((key for key in content if key not in allowed), None)
    if unknown is not None:
        raise ValueError(f"{unknown} is not a key of {where}; the keys are {', '.join(allowed)}")


def nonempty_list(content: Mapping[str, Any], key: str, default: list[Any] | None = None) -> list[Any]:
    """The list under a key of `content`; without a default the key must be there."""
    if key not in content and default is None:
        raise ValueError(f"{key} is missing; give a list of them")
    value = content.get(key, default)
    if not isinstance(value, list) or not value:
        raise ValueError(f"{key} must be a list with at least one entry, found {shortened(value)}")
    return value


def each_once(values: Sequence[Hashable], key: str, advice: str) -> None:
    """Refuses a value that is listed twice."""
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"{key} has {twice[0]!r} twice; {advice}")
