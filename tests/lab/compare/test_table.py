"""Tables as terminals and documents show them, and documents that are filled with them."""

import io
import math

import pytest
from rich.console import Console

from excessmtl.lab.compare.page import Page
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
    assert table.as_markdown().endswith("| mine [x] | **0.9** |\n")


def test_records_become_markdown_by_the_formats_of_their_columns():
    records = [{"name": "a|b", "error": 0.12345, "share": 0.5, "left": 1}, {"name": "c", "error": math.nan, "share": 1}]
    table = Table.of_records(records, {"name": "", "error": ".2f", "share": lambda value: f"{value:.0%}"})
    assert table.as_markdown() == (
        "| name | error | share |\n| --- | ---: | ---: |\n| a\\|b | 0.12 | 50% |\n| c | – | 100% |\n"
    )


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("By hand.\n\n<!-- one -->old<!-- /one -->\n\nMore.\n<!-- two --><!-- /two -->\n")
    table = Table.of_texts("", ["word", "number"], [["x", "1"]])
    return Page(path, {"one": lambda: "new\n", "two": lambda: table})


def test_a_page_is_filled_between_its_markers_and_nowhere_else(page):
    assert page.write()
    table = "| word | number |\n| --- | ---: |\n| x | 1 |"
    assert page.path.read_text() == (
        f"By hand.\n\n<!-- one -->\n\nnew\n\n<!-- /one -->\n\nMore.\n<!-- two -->\n\n{table}\n\n<!-- /two -->\n"
    )
    assert not page.write()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<!-- /two -->", ""),
        ("<!-- one -->", "<!-- one --><!-- one -->"),
        ("More.", "<!-- three --><!-- /three -->"),
        ("<!-- two --><!-- /two -->", "<!-- /two --><!-- two -->"),
    ],
)
def test_markers_that_do_not_fit_are_one_sentence_and_nothing_is_written(page, old, new):
    text = page.path.read_text().replace(old, new)
    page.path.write_text(text)
    with pytest.raises(ValueError, match=r"page\.md must hold <!-- part --> .* once for \['one', 'two'\] alone"):
        page.write()
    assert page.path.read_text() == text
