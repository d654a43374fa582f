"""The tables of the page to choose by, from made-up runs."""

import json
from dataclasses import replace

import pytest

from report_data import run
from research import choosing

CLEAN = {("excess", 0.0): 0.9, ("excess", 0.8): 0.89, ("uniform", 0.0): 0.92, ("uniform", 0.8): 0.85}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    page = tmp_path / "choosing.md"
    page.write_text(
        "a\n<!-- methods -->\n<!-- /methods -->\nb\n<!-- robustness -->\nold\n<!-- /robustness -->\n"
        "<!-- groups --><!-- /groups -->\nc\n<!-- names --><!-- /names -->"
    )
    monkeypatch.setattr(choosing, "PAGE", replace(choosing.PAGE, path=page))
    monkeypatch.setattr(choosing, "SCORES", tmp_path / "choosing.csv")
    monkeypatch.setattr(choosing, "GROUPS", tmp_path / "groups.csv")
    lines = [
        "bad_records,method,seed,error",
        "none,uniform,0,5",
        "none,excess,0,5.5",
        "none,uniform,1,7",
        "none,excess,1,7",
    ]
    choosing.GROUPS.write_text("\n".join(lines))
    for (method, noise), score in CLEAN.items():
        for seed in range(3):
            folder = tmp_path / "runs" / method / str(noise) / str(seed)
            folder.mkdir(parents=True)
            scores = {"clean": score + seed / 1000, "noisy": 0.5}
            (folder / "summary.json").write_text(json.dumps(run(method, noise, seed, scores)))
    return tmp_path / "runs"


def test_what_noise_costs_and_the_best_under_noise_first(runs):
    choosing.main([str(runs)])
    page = choosing.PAGE.path.read_text()
    assert page.index("| excess | 1.0 | 90.1 | 89.1 | 1.0 ± 0.0 |") < page.index(
        "| uniform | 2.0 | 92.1 | 85.1 | 7.0 ± 0.0 |"
    )
    assert "| `uniform` | [Caruana 1997]" in page
    assert "| 7.0 points | keeps its weight |" in page
    assert "not measured" in page, "the other methods have no runs"
    assert "old" not in page
    assert "| none | 6.00 | 6.25 | +0.25 ± 0.35 |" in page
    choosing.main([])
    assert choosing.PAGE.path.read_text() == page


def test_a_method_is_added_to_those_measured_before(runs):
    choosing.main([str(runs)])
    for path in runs.rglob("summary.json"):
        summary = json.loads(path.read_text())
        better = {**summary, "method": "rlw", "label": "rlw", "clean_score": summary["clean_score"] + 0.02}
        path.write_text(json.dumps(better)) if "excess" in str(path) else path.unlink()
    choosing.main(["--add", str(runs)])
    page = choosing.PAGE.path.read_text()
    assert page.index("| rlw | 1.0 |") < page.index("| excess | 2.0 |") < page.index("| uniform | 3.0 |")
    once = choosing.SCORES.read_text()
    choosing.main(["--add", str(runs)])  # measured anew
    assert choosing.SCORES.read_text() == once


def test_a_run_that_has_diverged_does_not_make_a_method_look_good(runs):
    path = runs / "excess" / "0.8" / "2" / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps({**summary, "clean_score": None, "scores": {"clean": None, "noisy": None}}))
    choosing.main([str(runs)])
    assert "| excess | 2.0 | 90.1 | – | – |" in choosing.PAGE.path.read_text()


def test_levels_that_cannot_be_compared_are_one_sentence(runs, capsys):
    for path in runs.rglob("0.0/*/summary.json"):
        path.unlink()
    with pytest.raises(SystemExit, match="2"):
        choosing.main([str(runs)])
    assert "the table compares 0 with one other level" in capsys.readouterr().err
    assert not choosing.SCORES.exists()
