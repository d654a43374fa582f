"""Every document with numbers says what the committed files say."""

import pytest

from research.pages import PAGES, load


@pytest.mark.parametrize("place", PAGES)
def test_a_page_is_what_its_files_say(place):
    page = load(place)
    assert page.text() == page.path.read_text(encoding="utf-8"), "run make pages"
