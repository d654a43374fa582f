"""Results as tables: for the terminal, and for a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

HEADER = ("method", "ms", "quartiles", "ratio", "quartiles", "peak MB")
TO_REPLAYED = "ratio to plain-replayed"


def title(result: Mapping[str, Any]) -> str:
    """What a network is."""
    return (
        f"{result['network']}: {result['summary']}, {result['parameters']:,} shared parameters, "
        f"{result['tasks']} tasks, batch {result['batch']}"
    )


def cells(row: Mapping[str, Any]) -> list[str]:
    """The row of one variant."""
    low, median, high = row["ms"]
    least, ratio, most = row["ratio"]
    peak = "" if row["peak_mb"] is None else f"{row['peak_mb']:,.0f}"
    return [
        row["method"],
        f"{median:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"x{ratio:.2f}",
        f"{least:.2f} to {most:.2f}",
        peak,
    ]


def to_replayed(result: Mapping[str, Any]) -> list[list[str]]:
    """One more cell for each row: what a recording costs over plain PyTorch recorded too; none without recordings."""
    found = [row.get("to_replayed") for row in result["rows"]]
    if not any(found):
        return [[] for _ in found]
    return [[""] if ratio is None else [f"x{ratio[1]:.2f}"] for ratio in found]


def as_rich(result: Mapping[str, Any]) -> Table:
    """One network, for the terminal."""
    table, more = Table(title=title(result)), to_replayed(result)
    for column in (*HEADER, *([TO_REPLAYED] if any(more) else [])):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row, cell in zip(result["rows"], more, strict=True):
        table.add_row(*cells(row), *cell)
    return table


def as_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a page; the first column is words, the others numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
