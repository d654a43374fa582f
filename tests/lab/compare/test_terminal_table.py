"""Tables as a terminal shows them."""

import io

import pytest
from rich.console import Console

from excessmtl.lab.compare.table import Cell, Row, Table


@pytest.mark.parametrize("markup", [True, False])
def test_the_best_number_is_bold_and_brackets_are_shown_as_they_are(markup):
    table = Table("runs/[/b]", ["method", "score"], [Row([Cell("mine [x]"), Cell("0.9", best=True)])])
    shown = Console(file=io.StringIO(), force_terminal=True, markup=markup, width=60, color_system="standard")
    shown.print(table.as_rich())
    text = shown.file.getvalue()
    assert "\x1b[1m  0.9" in text
    assert "[bold]" not in text
    assert "runs/[/b]" in text
    assert "mine [x]" in text
