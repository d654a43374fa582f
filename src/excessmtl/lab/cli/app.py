"""The commands of `excessmtl`. The module of a command is imported when it is called, so that all start quickly."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import excessmtl
from excessmtl.lab.cli.terminal import console, plain_errors

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
