"""Sections that a package adds to the report: those of the paper, and those of a paper that nobody has written."""

import base64
import json
import re
import sys
from pathlib import Path

import pytest

from commands import excessmtl, refused
from excessmtl import lab
from excessmtl.lab.compare.collect import write_table
from excessmtl.lab.runs.folder import SECTIONS
from made_up_runs import as_frame
from report_data import ACCURACY, ERROR, made_up, table
from worlds import RIGHT, multimnist


def report(folder, *options):
    out = folder.with_name("report.html")
    result = excessmtl("report", folder, "-o", out, *options)
    return result, out.read_text() if out.exists() else ""


@pytest.fixture
def second_paper(tmp_path):
    """The folder of a package with the section that the documentation shows."""
    package = tmp_path / "packages" / "my_paper"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    document = (Path(__file__).parents[3] / "docs/report.md").read_text(encoding="utf-8")
    (package / "sections.py").write_text(document.split("```python\n# my_paper/sections.py\n")[1].split("```")[0])
    yield package.parent
    for name in [name for name in sys.modules if "my_paper" in name]:
        del sys.modules[name]


@pytest.fixture
def runs(tmp_path):
    write_table(table(made_up("excess"), made_up("mgda")), tmp_path / "runs" / "runs.csv")
    return tmp_path / "runs"


@pytest.mark.parametrize("how", ["asked for", "named by the folder"])
def test_a_figure_of_another_paper_is_one_folder(runs, second_paper, monkeypatch, how):
    if how == "asked for":
        monkeypatch.syspath_prepend(second_paper)
        result, page = report(runs, "--sections", "my_paper")
    else:
        monkeypatch.setattr(lab, "__path__", [*lab.__path__, str(second_paper)])
        (runs / SECTIONS).write_text('["my_paper"]')
        result, page = report(runs)
    assert result.exit_code == 0, result.output
    section = re.search(r'<section id="my-figure-1".*?</section>', page, flags=re.DOTALL)[0]
    assert "Figure 1 of my paper</h2>" in section
    (content,) = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)"', section)
    assert b"<svg" in base64.b64decode(content)
    assert '<a href="#my-figure-1">' in page
    assert page.index('id="explorer"') < page.index('id="my-figure-1"') < page.index('id="regret"')


def test_a_section_that_these_runs_do_not_show_is_left_out(second_paper, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(second_paper)
    write_table(table(made_up(kinds={"a": ACCURACY, "b": ERROR})), tmp_path / "other" / "runs.csv")
    result, page = report(tmp_path / "other", "--sections", "my_paper")
    assert result.exit_code == 0, result.output
    assert "my-figure-1" not in page


BUNDLED = "bundled digits, 4,000 + 1,000, 4,000 pairs, canvas 36"


@pytest.mark.parametrize(
    ("changes", "seeds", "claims"),
    [({}, 3, True), ({}, 1, False), ({"epochs": 3}, 3, False), ({"source": BUNDLED}, 3, False)],
)
def test_the_papers_claims_are_shown_where_they_were_tried(tmp_path, changes, seeds, claims):
    frame = as_frame(multimnist(RIGHT)).assign(**changes)
    write_table(frame[frame["seed"] < seeds], tmp_path / "runs" / "runs.csv")
    (tmp_path / "runs" / SECTIONS).write_text('["paper"]')
    _, page = report(tmp_path / "runs")
    assert ('id="claims"' in page, 'href="#claims"' in page) == (claims, claims)


def test_a_report_shows_the_papers_sections_only_where_it_is_asked_to(tmp_path):
    write_table(as_frame(multimnist(RIGHT)), tmp_path / "runs" / "runs.csv")
    (tmp_path / "runs" / "multimnist_2.png").write_bytes(b"small")
    _, plain = report(tmp_path / "runs")
    assert "claim" not in re.sub(r"<script.*?</script>|<style.*?</style>", "", plain, flags=re.DOTALL)
    assert "<figcaption>multimnist_2</figcaption>" in plain
    _, asked = report(tmp_path / "runs", "--sections", "paper")
    assert "The paper&#39;s claims</h2>" in asked
    caption = "Figure 6: scores and clean weight over noise levels, MultiMNIST (multimnist_2)"
    assert f"<figcaption>{caption}</figcaption>" in asked
    assert asked.count("<figcaption>Figure") == 1


@pytest.mark.parametrize("content", ["{", '"paper"', "[3]", '["os"]', '["paper.claims"]', '["../paper"]'])
def test_a_damaged_list_of_sections_is_one_sentence_and_imports_nothing(runs, content):
    (runs / SECTIONS).write_text(content)
    result, page = report(runs)
    refused(result, "sections.json cannot be read", "; delete it, and use --sections")
    assert page == ""


def test_a_folder_cannot_have_a_package_of_its_own_imported(runs, second_paper, monkeypatch):
    monkeypatch.syspath_prepend(second_paper)
    (runs / SECTIONS).write_text(json.dumps(["my_paper"]))
    result, _ = report(runs)
    refused(result, "no package of the laboratory is called 'my_paper'")
    assert "my_paper" not in sys.modules


def test_an_unknown_package_is_named(runs):
    result, page = report(runs, "--sections", "nothing")
    refused(result, "there is no package 'nothing' with a module `sections`")
    assert page == ""
