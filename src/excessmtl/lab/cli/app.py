"""The commands of `excessmtl`, what they print to, and mistakes as one line and an exit code.

The module of a command is imported when it is called, so that all start quickly.
"""

import logging
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command

import excessmtl

USAGE, INTERRUPTED = 2, 130
# Paths and names are printed as they are: brackets are no markup, colons no emoji.
console = Console(highlight=False, markup=False, emoji=False)
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
_KEPT = "what is finished is kept, the same command goes on with the rest"
COMMANDS = {
    "train": ("train", "the last finished epoch is kept, the same command with --resume goes on"),
    "sweep": ("sweep", _KEPT),
    "reproduce": ("reproduce", _KEPT),
    "report": ("report", "nothing was written"),
    "diagnose": ("diagnose", "nothing was written"),
    "crossval": ("diagnose", _KEPT),
    "bench": ("bench", "nothing was written; --quick takes a few seconds"),
    "methods": ("lists", "nothing was changed"),
    "benchmarks": ("lists", "nothing was changed"),
    "data": ("lists", "nothing was changed"),
}
"""Name -> its module, and what is printed after Ctrl-C."""


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # Where there is no such command, Typer proposes the most similar one of all that are loaded.
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            self.commands.setdefault(name, _loaded(name))
        return self.commands.get(cmd_name)


def _loaded(name: str) -> Any:
    module, interrupted = COMMANDS[name]
    command = getattr(import_module(f"excessmtl.lab.cli.{module}"), name)
    if not isinstance(command, typer.Typer):
        function, command = command, typer.Typer(add_completion=False)
        command.command(name)(plain_errors(function, interrupted))
    return get_command(command)


app = typer.Typer(
    cls=_Commands,
    help="Multi-task learning when some tasks have bad labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        console.print(f"excessmtl {excessmtl.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


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
