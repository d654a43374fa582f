"""The terminal: what is printed to it, mistakes as one line and an exit code, and lists that are typed there."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import typer
from rich.console import Console

USAGE, INTERRUPTED = 2, 130
# Paths and names are printed as they are: brackets are no markup, colons no emoji.
console = Console(highlight=False, markup=False, emoji=False)
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


def plain_errors(command: Callable[..., None], interrupted: str = "nothing was changed") -> Callable[..., None]:
    """What a user can mend becomes `error: ...` and exit code 2; `interrupted` is printed after Ctrl-C."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            sentence, code = _told(error, interrupted)
            errors.print(sentence)
            raise typer.Exit(code) from None

    return wrapped


def _told(error: BaseException, interrupted: str) -> tuple[str, int]:
    """The line to print and the exit code; a mistake of ours is raised again, with its traceback."""
    cause: BaseException | None = error
    while cause is not None:  # Ctrl-C while a file is being written may surface as an error of its writer
        if isinstance(cause, KeyboardInterrupt):
            return f"interrupted; {interrupted}", INTERRUPTED
        cause = cause.__context__
    if isinstance(error, ValueError):
        return f"error: {error}", USAGE
    if isinstance(error, torch.OutOfMemoryError):
        return "error: the device does not have enough memory; lower --batch-size", USAGE
    if isinstance(error, OSError):
        place = f" {error.filename}" if error.filename else ""
        return f"error: cannot read or write{place}: {error.strerror or error}", USAGE
    raise error


def silence_lightning() -> None:
    """Call it after the import of lightning, which sets the levels: its echo of the precision is for programmers."""
    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)


def names_in(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
