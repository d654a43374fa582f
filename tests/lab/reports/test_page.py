"""The page as text, and the command that writes it."""

import re

import pytest

from commands import done, excessmtl, refused
from excessmtl.lab.compare.collect import collect, write_table
from excessmtl.lab.compare.regret import regrets_of
from excessmtl.lab.reports import page as reports_page
from report_data import copied, made_up, table


def render(folder, command):
    frame = collect(folder)
    return reports_page.render(folder, frame, regrets_of(frame), command)


def readable(page):
    """Without scripts and the packed parts."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_command_writes_one_page_that_needs_nothing_else(runs, tmp_path):
    done("report", runs, "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#|data:)', readable(page))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    shown = readable(page)
    assert "15 runs of 3 methods, noise 0, 0.8; 2 seeds" in " ".join(shown.split())
    assert "bundled digits, 4,000 + 1,000" in shown
    assert "ray-cast rooms" in shown
    assert f"excessmtl report '{runs}' -o {tmp_path / 'report.html'}" in shown.replace("&#39;", "'")


def test_equal_runs_give_an_equal_page(runs):
    assert render(runs, "again") == render(runs, "again")


def test_names_are_text_and_never_markup(runs, tmp_path):
    evil = "<script>alert(1)</script>&<b>"
    copied(runs / "digits/excess/noise-0.8/seed-0", tmp_path / "runs/one", label=evil, benchmark=evil)
    page = render(tmp_path / "runs", evil)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&lt;b&gt;" in page


def test_a_table_alone_gives_a_page_without_explorer(runs, tmp_path):
    (tmp_path / "table").mkdir()
    write_table(collect(runs), tmp_path / "table" / "runs.csv")
    page = readable(render(tmp_path / "table", ""))
    assert "no steps to explore" in page
    assert 'id="run-setting"' not in page
    whole = readable(render(runs, ""))
    cells = r'<td class="number[^>]*>([^<]+)<'
    assert re.findall(cells, page) == re.findall(cells, whole)


def test_runs_that_have_not_finished_are_counted(runs, tmp_path):
    first = copied(runs / "digits/excess/noise-0.8/seed-0", tmp_path / "runs/one")
    assert "not finished" not in render(tmp_path / "runs", "")
    (copied(first, tmp_path / "runs/two") / "summary.json").unlink()
    assert "1 more run has not finished and is left out." in render(tmp_path / "runs", "")


def test_pictures_beside_the_runs_are_embedded_once(runs, tmp_path):
    copied(runs / "digits/excess/noise-0.8/seed-0", tmp_path / "runs/one")
    (tmp_path / "multimnist.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>" + " " * 500)
    (tmp_path / "multimnist.png").write_bytes(b"small")
    page = render(tmp_path, "")
    assert re.findall(r'<img src="(data:image/[^;]+;base64,[^"]{,8})', page) == ["data:image/png;base64,c21hbGw="]
    assert "<figcaption>multimnist</figcaption>" in page


def test_a_link_to_a_file_elsewhere_is_not_embedded(runs, tmp_path):
    copied(runs / "digits/excess/noise-0.8/seed-0", tmp_path / "runs/one")
    (tmp_path / "secret").write_bytes(b"password")
    (tmp_path / "runs" / "x.png").symlink_to(tmp_path / "secret")
    (tmp_path / "runs" / "y.png").symlink_to("/dev/zero")
    (tmp_path / "runs" / "z.svg").mkdir()
    assert "<img" not in render(tmp_path / "runs", "")


def test_the_regret_of_any_method_is_shown_where_it_has_a_rival(tmp_path):
    write_table(table(made_up("mine"), made_up("mgda")), tmp_path / "runs" / "runs.csv")
    assert 'id="regret"' not in render(tmp_path / "runs", "")
    printed = done("report", tmp_path / "runs", "-o", tmp_path / "report.html", "--method", "mine")
    assert "comparisons mine is better in 0, equivalent in 0, undecided in 2, worse in 0" in printed
    assert "How much worse mine is than each rival" in (tmp_path / "report.html").read_text()
    wrong = excessmtl("report", tmp_path / "runs", "-o", tmp_path / "other.html", "--method", "yours")
    refused(wrong, "there is no run of 'yours'; the methods of these runs are mine, mgda")
    assert not (tmp_path / "other.html").exists()


def test_a_single_run_is_a_report_too(runs):
    assert "1 run of" in " ".join(render(runs / "digits/single/noise-0/seed-0", "").split())


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("", None, "is not a folder"),
        ("note.txt", "", "holds no finished run"),
        ("runs.csv", "a,b\n1,2\n", "is not a table of runs"),
        ("summary.json", "{", "summary.json is not JSON"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(tmp_path, file, content, message):
    if file:
        (tmp_path / "runs").mkdir()
    if content is not None:
        (tmp_path / "runs" / file).write_text(content)
    refused(excessmtl("report", tmp_path / "runs", "-o", tmp_path / "out" / "report.html"), message)
    assert not (tmp_path / "out").exists()
