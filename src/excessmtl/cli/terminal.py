"""The terminal. Paths and names are printed as they are: brackets are no markup, colons no emoji."""

from rich.console import Console

console = Console(highlight=False, markup=False, emoji=False)
