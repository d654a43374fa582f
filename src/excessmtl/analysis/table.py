"""A table of texts, for a document or for a terminal."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

_WORDS = ("method", "benchmark")
"""Columns that hold words, not numbers."""


@dataclass(frozen=True)
class TextTable:
    """Rows of texts under named columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def as_markdown(self) -> str:
        """The table for a document, without its title."""
        ruler = ["---" if column in _WORDS else "---:" for column in self.columns]
        lines = [self.columns, ruler, *self.rows]
        return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)

    def as_rich(self) -> Table:
        """The table for a terminal, with lines between groups of rows that begin alike."""
        table = Table(title=escape(self.title))
        for column in self.columns:
            table.add_column(escape(column), justify="left" if column in _WORDS else "right")
        grouped = len({row[0] for row in self.rows}) < len(self.rows)
        for row, following in itertools.zip_longest(self.rows, self.rows[1:]):
            table.add_row(*map(escape, row), end_section=grouped and following is not None and following[0] != row[0])
        return table
