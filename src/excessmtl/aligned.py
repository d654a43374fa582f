"""Tables as plain text."""

from collections.abc import Collection, Mapping, Sequence


def aligned(table: Mapping[str, Sequence[str]], to_the_left: Collection[str] = ("task", "")) -> str:
    """Columns by their heading, numbers to the right; `to_the_left` names the columns that hold words."""
    columns = []
    for heading, cells in table.items():
        width = max(map(len, [heading, *cells]))
        align = str.ljust if heading in to_the_left else str.rjust
        columns.append([align(cell, width) for cell in (heading, *cells)])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))
