"""The documentation site has every page, and the Python on its own pages runs; `make docs` builds it."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent


def pages(nav):
    """The files a navigation names, at any depth."""
    for entry in nav:
        (below,) = entry.values()
        yield from pages(below) if isinstance(below, list) else [below]


def test_the_navigation_has_every_page_once():
    named = list(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert sorted(named) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("name", ["quickstart.md", "shared.md", "missing-labels.md"])
def test_the_page_runs_from_top_to_bottom(name):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    source = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    exec(compile(source, name, "exec"), {"__name__": "page"})
