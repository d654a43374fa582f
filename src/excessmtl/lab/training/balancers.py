"""The balancer of a run: a method by name, or a rule of your own by import path."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

import excessmtl
from excessmtl.lab.data.find import import_path, is_import_path
from excessmtl.lab.runs.config import SINGLE
from excessmtl.methods.names import checked_name


def check_method(name: str) -> None:
    """Refuses a method that is not there."""
    known = [*excessmtl.list_methods(), SINGLE]
    if is_import_path(name):
        import_path(name, "method")
    else:
        checked_name(name, known, ", or package.module:Rule")


def make_balancer(
    name: str, tasks: Sequence[str], shared: nn.Module | list[nn.Module], options: Mapping[str, Any]
) -> excessmtl.Balancer:
    """The balancer, with options of the method and of `Balancer`; those that do not fit are refused."""
    check_method(name)
    try:
        if not is_import_path(name):
            return excessmtl.create(name, tasks=tasks, shared=shared, **options)
        parameters = inspect.signature(excessmtl.Balancer.__init__).parameters.values()
        common = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
        made = import_path(name, "method")
        if not (isinstance(made, type) and callable(getattr(made, "update", None))):
            raise ValueError(f"method {name!r} must be a class derived from Rule (see CONTRIBUTING.md), found {made!r}")
        if not hasattr(made, "name"):  # `@method` gives a rule its name; without it, the path does
            made.name = name  # type: ignore[attr-defined]
        rule = made(**{key: value for key, value in options.items() if key not in common})
        return excessmtl.Balancer(rule, tasks, shared, **{key: options[key] for key in options if key in common})
    except TypeError as error:
        raise ValueError(f"options {dict(options)} do not fit method {name!r}: {error}") from error
