"""The report as a reader sees it: drawn, sorted, explored, on a phone, in the dark, with hundreds of runs."""

import numpy as np
import pytest
from browser import ARGUMENTS, executable, opened

from excessmtl.lab.compare.collect import write_table
from excessmtl.lab.reports.page import write_report
from excessmtl.lab.runs.summary import QUANTITIES
from report_data import copied, made_up, table

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(executable() is None, reason="no Chromium on this machine")

DRAWN = """() => {
  const hasExtent = (trace) =>
    [...trace.querySelectorAll('path.js-line, path.point')].some((path) => path.getBBox().width > 0);
  const plots = [...document.querySelectorAll('.plot:not([hidden])')];
  return plots.map((plot) => [...plot.querySelectorAll('.scatterlayer .trace')].filter(hasExtent).length);
}"""
ORDERS = """(column) => [...document.querySelectorAll('#setting-0 tbody tr')]
  .map((row) => row.cells[column].dataset.order).filter(Boolean)"""
COLOURS = """() => [
  getComputedStyle(document.body).backgroundColor,
  getComputedStyle(document.querySelector('.plot .xtick text')).fill,
  getComputedStyle(document.querySelector('.plot path.js-line[style*="stroke-width: 2"]')).stroke,
]"""
LINES = "(id) => [...document.querySelectorAll(`#${id} path.js-line`)].map((path) => path.getAttribute('d')).join()"
EXPLORED = "run-figures"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable(), args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(runs, path)
    return path


@pytest.fixture
def shown(browser, report):
    with opened(browser, report) as found:
        yield found
        assert [url for url in found.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_every_figure_is_drawn(shown):
    drawn = shown.evaluate(DRAWN)
    # Three scores or tasks, Delta_m, clean weight; the explorer: three quantities and the accuracy.
    assert len(drawn) == 5 + 5 + 4
    assert all(traces > 0 for traces in drawn)
    assert shown.page.locator("#setting-0 .plot").first.locator(".scatterlayer .trace").count() >= 3


def test_nothing_on_the_page_sends_a_chart_away(shown):
    titles = shown.evaluate("() => [...document.querySelectorAll('.modebar-btn')].map((b) => b.dataset.title)")
    assert titles
    assert {title.split(" ")[0] for title in titles} <= {"Download", "Reset"}


@pytest.mark.slow
def test_methods_are_taken_away_brought_back_and_pointed_at(shown):
    plot = shown.page.locator("#setting-0 .plot").first
    traces = plot.locator(".scatterlayer path.js-line:not([d=''])")
    before, chip = traces.count(), shown.page.locator("#setting-0 .chip[data-label=uniform]")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert 0 < traces.count() < before
    shown.page.click("#setting-0 [data-all=false]")
    assert traces.count() == 0
    shown.page.click("#setting-0 [data-all=true]")
    assert traces.count() == before
    chip.hover()
    assert plot.locator(".trace[style*='opacity: 0.15']").count() == 2
    shown.page.hover("h1")
    assert plot.locator(".trace[style*='opacity: 0.15']").count() == 0


def test_choosing_another_run_changes_the_curves(shown):
    seen = {shown.evaluate(LINES, EXPLORED)}
    for select, value in (("run-seed", "1"), ("run-noise", "0"), ("run-label", "uniform"), ("run-setting", "1")):
        shown.page.select_option(f"#{select}", value)
        assert shown.page.input_value(f"#{select}") == value
        # A copied seed has the same steps as its original: only what is chosen is compared there.
        if select != "run-seed":
            curves = shown.evaluate(LINES, EXPLORED)
            assert curves not in seen
            seen.add(curves)
    assert "uniform" in shown.page.text_content("#run-facts")


@pytest.mark.slow
def test_a_second_run_adds_dashed_curves(shown):
    dashed = shown.page.locator(f"#{EXPLORED} .plot").nth(1).locator("path.js-line[style*='stroke-dasharray']")
    assert dashed.count() == 0
    shown.page.select_option("#other-label", "uniform")
    assert dashed.count() == 2
    assert shown.page.input_value("#other-noise") == shown.page.input_value("#run-noise")
    assert "compared with uniform, noise 0.8" in shown.page.text_content("#run-facts")
    shown.page.select_option("#other-label", "")
    assert dashed.count() == 0


@pytest.mark.slow
def test_tasks_scales_and_missing_quantities_in_the_explorer(shown):
    losses = shown.page.locator(f"#{EXPLORED} .plot").nth(1).locator("path.js-line")
    for selector, count in (("#run-tasks .chip >> nth=0", 1), ("#no-tasks", 0), ("#all-tasks", 2)):
        shown.page.click(selector)
        assert losses.count() == count
    before = shown.evaluate(LINES, EXPLORED)
    shown.page.check("#log-scale")
    assert shown.evaluate(LINES, EXPLORED) != before
    shown.page.select_option("#run-label", "single")
    assert "No weights: single-task networks have none, or the run did not keep them." in shown.texts(
        f"#{EXPLORED} .empty:not([hidden])"
    )


def orders(shown, column):
    return [float(value) for value in shown.evaluate(ORDERS, column)]


@pytest.mark.slow
def test_a_click_on_a_heading_sorts_and_a_second_one_turns_round(shown):
    heading = shown.page.locator("#setting-0 thead th").nth(4)
    before = orders(shown, 4)
    heading.locator("button").click()
    assert orders(shown, 4) == sorted(before)
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").focus()
    shown.page.keyboard.press("Enter")
    assert orders(shown, 4) == sorted(before, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"


@pytest.mark.slow
def test_rows_without_a_value_sort_last_and_noise_levels_can_be_chosen(shown):
    column = shown.texts("#setting-0 thead th").index("rank ↓")
    rows = shown.page.locator("#setting-0 tbody tr:visible")
    for _ in range(2):
        shown.page.locator("#setting-0 thead th").nth(column).locator("button").click()
        assert rows.last.locator("td").nth(column - 1).text_content() == "–"
    assert rows.count() == 6
    shown.page.locator("#setting-0 .chip[data-noise='0.0']").click()
    assert rows.count() == 3
    assert set(shown.texts("#setting-0 tbody tr:visible td:nth-child(2)")) == {"0.8"}


@pytest.mark.slow
def test_the_regret_table_can_show_only_where_the_method_is_worse(browser, tmp_path):
    scores = {"excess": None, "mgda": {"a": 0.99, "b": 0.5}, "uniform": None}
    runs = [made_up(label, seed=seed, scores=scores[label]) for seed in range(3) for label in scores]
    write_table(table(*runs), tmp_path / "runs.csv")
    write_report(tmp_path, tmp_path / "report.html")
    with opened(browser, tmp_path / "report.html") as found:
        rows = found.page.locator("#regret-table tbody tr:visible")
        assert rows.count() == 4
        found.page.click("#beyond-only")
        assert rows.count() == 2
        assert all("mgda" in text for text in rows.all_text_contents())


@pytest.mark.slow
def test_everything_can_be_reached_with_the_keyboard(shown):
    reached = set()
    for _ in range(140):
        shown.page.keyboard.press("Tab")
        reached.add(shown.evaluate("() => document.activeElement.id || document.activeElement.className"))
    assert {"skip", "chip", "scroll", "run-setting", "run-label", "log-scale", "other-label"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_boxes_and_not_the_page(browser, report, scheme):
    with opened(browser, report, width=390, height=844, scheme=scheme) as found:
        assert found.evaluate("() => document.documentElement.scrollWidth") == 390
        box = "() => { const box = document.querySelector('.scroll'); return box.scrollWidth > box.clientWidth; }"
        assert found.evaluate(box)
        widths = (
            "() => [...document.querySelectorAll('.plot:not([hidden]) svg.main-svg')].map((plot) => plot.clientWidth)"
        )
        assert 200 < max(found.evaluate(widths)) <= 390


@pytest.mark.slow
def test_the_colour_scheme_changes_page_and_plots_while_the_page_is_open(shown):
    light = shown.evaluate(COLOURS)
    shown.page.emulate_media(color_scheme="dark")
    changed = "(before) => getComputedStyle(document.querySelector('.plot .xtick text')).fill !== before"
    shown.page.wait_for_function(changed, arg=light[1])
    dark = shown.evaluate(COLOURS)
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_strange_names_are_shown_as_they_are(browser, runs, tmp_path):
    name = "<b>bold</b> & <img src=x onerror=alert(1)>"
    copied(runs / "digits/excess/noise-0.8/seed-0", tmp_path / "runs/one", label=name)
    write_report(tmp_path / "runs", tmp_path / "report.html")
    with opened(browser, tmp_path / "report.html") as found:
        assert name in found.page.text_content("#setting-0 tbody th")
        assert name in found.page.text_content("#run-label")
        assert found.page.locator("img").count() == 0


@pytest.mark.slow
def test_five_hundred_runs_are_a_page_of_a_few_megabytes_that_opens(browser, runs, tmp_path):
    for number in range(500):
        method = ("excess", "uniform", "single")[number % 3]
        source = runs / "digits" / method / f"noise-{(0, 0.8)[number % 2]:g}" / "seed-0"
        copied(source, tmp_path / "runs" / str(number), steps=3000, seed=number // 6, label=f"{method} {number % 12}")
    write_report(tmp_path / "runs", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 6e6
    with opened(browser, tmp_path / "report.html") as found:
        assert all(traces > 0 for traces in found.evaluate(DRAWN))
        before = found.evaluate(LINES, EXPLORED)
        found.page.select_option("#run-seed", index=5)
        assert found.evaluate(LINES, EXPLORED) != before


@pytest.mark.slow
def test_curves_that_a_run_did_not_keep_come_and_go_without_complaint(browser, tmp_path):
    rows = []
    for noise, kept in ((0.0, "losses"), (0.4, "weights"), (0.8, "losses")):
        folder = tmp_path / "runs" / f"noise-{noise}"
        folder.mkdir(parents=True)
        curves = {name: np.full((50, 2), 0.5 if name == kept else np.nan) for name in QUANTITIES}
        np.savez(folder / "steps.npz", tasks=np.array(["a", "b"]), **curves)
        rows.append(made_up("excess", noise, folder=folder.name))
    write_table(table(*rows), tmp_path / "runs" / "runs.csv")
    write_report(tmp_path / "runs", tmp_path / "report.html")
    with opened(browser, tmp_path / "report.html") as found:
        for noise in ("0.4", "0.0", "0.4", "0.8"):
            found.page.select_option("#run-noise", noise if noise != "0.0" else "0")
        panels = found.page.locator("#run-figures figure")
        assert panels.nth(0).inner_text().endswith("have none, or the run did not keep them.")
        assert panels.nth(1).locator(".scatterlayer .trace").count() == 2
