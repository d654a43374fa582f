"""Every document with numbers says what the committed files say."""

import pytest

from research.pages import PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_a_page_is_what_its_files_say(page):
    assert page.text() == page.path.read_text(encoding="utf-8"), "run make pages"
