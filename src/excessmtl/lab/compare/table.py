"""The one table: for a terminal, a Markdown document or an HTML page (`reports/templates/table.html.j2`).

And tables as CSV that a spreadsheet shows and does not compute: a cell that begins like a formula gets an apostrophe.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import rich.table
from rich.text import Text

from excessmtl.lab.compare.comparison import Spread

_WORDS = ("method", "benchmark", "rival", "tasks", "verdict")
Format = str | Callable[[Any], str]
"""How a value is written: a format such as ".2f", or a function."""


@dataclass(frozen=True)
class Cell:
    """A text, and what an HTML page makes of it."""

    text: str
    order: str | None = None
    """What a click on the heading sorts by, in the spelling of JavaScript; None: the text. Empty sorts last."""
    note: str = ""
    """A remark below the text."""
    best: bool = False
    badge: str = ""
    """"good" or "bad": shown as a coloured badge."""
    method: str = ""
    """A label whose colour is shown before the text."""
    spread: Spread | None = None
    """The numbers that the text is written from."""

    @property
    def plain(self) -> str:
        """With its remark."""
        return f"{self.text} ({self.note})" if self.note else self.text


@dataclass(frozen=True)
class Row:
    """Cells, and the group of rows that they belong to."""

    cells: Sequence[Cell]
    group: str = ""
    flagged: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    words: Collection[str] = _WORDS
    """Columns that hold words, besides the first one. The others hold numbers, which stand to the right."""

    @classmethod
    def of_texts(
        cls, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = _WORDS
    ) -> "Table":
        """Without anything but texts; rows that begin alike are a group."""
        return cls(title, columns, [Row([Cell(text) for text in row], row[0]) for row in rows], words)

    @classmethod
    def of_records(
        cls, records: Iterable[Mapping[str, Any]], formats: Mapping[str, Format], title: str = ""
    ) -> "Table":
        """The columns named by `formats`, in its order; an empty format marks a column of words.

        `frame.to_dict("records")` are records. A number that is missing (None, NaN) is written as a dash.
        """
        rows = [[written(record.get(column), how) for column, how in formats.items()] for record in records]
        return cls.of_texts(title, list(formats), rows, [column for column, how in formats.items() if how == ""])

    @property
    def texts(self) -> list[list[str]]:
        """The cells as plain texts."""
        return [[cell.plain for cell in row.cells] for row in self.rows]

    def without(self, columns: Collection[str]) -> "Table":
        """The other columns."""
        kept = [place for place, column in enumerate(self.columns) if column not in columns]
        rows = [replace(row, cells=[row.cells[place] for place in kept]) for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in kept], rows=rows)

    def is_number(self, column: str) -> bool:
        """Whether the cells of a column are numbers."""
        return column not in self.words and column != self.columns[0]

    def as_markdown(self) -> str:
        """The table for a document, without its title; the best numbers are bold."""
        ruler = ["---:" if self.is_number(column) else "---" for column in self.columns]
        body = [[f"**{cell.plain}**" if cell.best else cell.plain for cell in row.cells] for row in self.rows]
        lines = [[_one_line(column) for column in self.columns], ruler, *body]
        return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)

    def as_rich(self) -> rich.table.Table:
        """The table for a terminal, with lines between the groups of rows."""
        # Text, not markup: names may have brackets in them, whatever the console makes of those.
        table = rich.table.Table(title=Text(self.title))
        for column in self.columns:
            justify: Literal["left", "right"] = "right" if self.is_number(column) else "left"
            table.add_column(Text(_one_line(column)), justify=justify, no_wrap=column == "method")
        grouped = len({row.group for row in self.rows}) < len(self.rows)
        for row, following in itertools.zip_longest(self.rows, self.rows[1:]):
            texts = [Text(cell.plain, style="bold" if cell.best else "") for cell in row.cells]
            table.add_row(*texts, end_section=grouped and following is not None and following.group != row.group)
        return table


def written(value: Any, how: Format) -> str:
    """A value as it stands in a table."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return how(value) if callable(how) else format(value, how)


def _one_line(column: str) -> str:
    return column.replace("\n", " ")
