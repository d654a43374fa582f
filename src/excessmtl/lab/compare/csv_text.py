"""Tables as CSV that a spreadsheet shows and does not compute: a cell that begins like a formula gets an apostrophe."""

import re
from typing import Any

import pandas as pd

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""Apostrophes that were there before count too, so that `restored` takes away exactly the one that was added."""


def csv_text(frame: pd.DataFrame, float_format: str = "%.6g") -> str:
    """The frame as CSV; numbers, and texts that are numbers, stay as they are."""
    texts = frame.map(_shown) if len(frame) else frame
    return str(texts.to_csv(index=False, float_format=float_format, lineterminator="\n"))


def restored(cell: str) -> str:
    """The text that `csv_text` was given for this cell."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _shown(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
