"""`excessmtl methods`: the weighting methods, and the options of one."""

from typing import Annotated

import typer
from rich.table import Column, Table

from excessmtl.lab.cli.terminal import console


def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A method, to see its options.")] = None,
) -> None:
    """The weighting methods: what each needs, and what it is good for; with a name, all options of that method."""
    from excessmtl.methods import registry
    from excessmtl.methods.catalogue import rows

    known_methods = registry()
    if name is None:
        known = rows()
        shown = ("method", "paper", "needs", "good for")  # what fits a terminal; docs/choosing.md has the rest
        table = Table(*(Column(heading, no_wrap=heading == "method") for heading in shown))
        for row in known:
            table.add_row(*(row[column] for column in shown))
        console.print(table)
        console.print("excessmtl methods NAME lists the options of one")
        return
    from excessmtl.methods.names import NOTES, checked_name

    name = checked_name(name, known_methods)
    from excessmtl.create import BALANCER_OPTIONS
    from excessmtl.excess.method import rules
    from excessmtl.methods.documentation import options_of

    console.print(f"{name}: {_first_line(known_methods[name])}", soft_wrap=True)
    if name in NOTES:
        console.print(NOTES[name], soft_wrap=True)
    factory = known_methods[name]
    forms = {"": factory} if isinstance(factory, type) else rules()
    for heading, rule in forms.items():
        options = options_of(rule)
        if heading:
            console.print(f"\n{heading}")
        if not options:
            console.print("no options of its own")
            continue
        table = Table(Column("option", no_wrap=True), "type", "default", "what it is for")
        for option in options:
            table.add_row(option.name, option.kind, option.default, option.meaning)
        console.print(table)
    console.print(
        f"\nEvery method also has {', '.join(BALANCER_OPTIONS)}; Python's help(excessmtl.create) says what they are.",
        soft_wrap=True,
    )


def _first_line(factory: object) -> str:
    return (factory.__doc__ or "").strip().splitlines()[0]
