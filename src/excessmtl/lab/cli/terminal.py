"""The terminal: what is printed to it, and lists that are typed there."""

import logging

from rich.console import Console

# Paths and names are printed as they are: brackets are no markup, colons no emoji.
console = Console(highlight=False, markup=False, emoji=False)


def silence_lightning() -> None:
    """Call it after the import of lightning, which sets the levels: its echo of the precision is for programmers."""
    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)


def names_in(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
