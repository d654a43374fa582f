"""The options of a method as text: name, type, default and what it is for, from the source of its rule."""

import ast
import inspect
import textwrap
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Rule


@dataclass(frozen=True)
class Option:
    """One option of a method."""

    name: str
    kind: str
    default: str
    meaning: str


def options_of(rule: type[Rule]) -> list[Option]:
    """The options of a rule, those of its base classes first."""
    written = _written(rule)
    options = []
    for field in fields(rule):
        kind, meaning = written.get(field.name, (str(field.type), ""))
        # A place is written by its name.
        options.append(
            Option(field.name, "str" if isinstance(field.default, Probe) else kind, _default(field), meaning)
        )
    return [option for option, field in zip(options, fields(rule), strict=True) if field.init]


def _written(rule: type) -> dict[str, tuple[str, str]]:
    """Field -> its annotation, and the text below it, which Python itself does not keep."""
    texts: dict[str, tuple[str, str]] = {}
    for base in reversed(rule.__mro__):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):  # made in a console, or built in
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for line, below in zip(body, [*body[1:], None], strict=True):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                texts[line.target.id] = ast.unparse(line.annotation), _text(below)
    return texts


def _text(statement: ast.stmt | None) -> str:
    """Of a string that stands alone."""
    constant = statement.value if isinstance(statement, ast.Expr) else None
    value = constant.value if isinstance(constant, ast.Constant) else None
    return " ".join(inspect.cleandoc(value).split()) if isinstance(value, str) else ""


def _default(field: Field[Any]) -> str:
    value = field.default
    if value is MISSING:
        return "required" if field.default_factory is MISSING else repr(field.default_factory())
    return repr(value.value if isinstance(value, Probe) else value)
