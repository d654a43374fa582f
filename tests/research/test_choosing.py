"""The tables of the page to choose by, from made-up runs."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from excessmtl.lab.compare.collect import collect
from report_data import run
from research import choosing

CLEAN = {("excess", 0.0): 0.9, ("excess", 0.8): 0.89, ("uniform", 0.0): 0.92, ("uniform", 0.8): 0.85}


@pytest.fixture
def runs(tmp_path):
    for (method, noise), score in CLEAN.items():
        for seed in range(3):
            folder = tmp_path / "runs" / method / str(noise) / str(seed)
            folder.mkdir(parents=True)
            scores = {"clean": score + seed / 1000, "noisy": 0.5}
            (folder / "summary.json").write_text(json.dumps(run(method, noise, seed, scores)))
    return tmp_path / "runs"


def test_what_noise_costs_and_the_rank_under_it(runs):
    scores = choosing.scores_of(collect(runs)).set_index("method")
    columns = ["without", "with_noise", "lost", "spread", "rank", "seeds"]
    assert scores.loc["excess", columns].tolist() == [0.901, 0.891, 1.0, 0.0, 1.0, 3.0]
    assert scores.loc["uniform", columns].tolist() == [0.921, 0.851, 7.0, 0.0, 2.0, 3.0]
    shown = {row[0].split("`")[1]: row for row in choosing.methods_table(scores.reset_index()).texts}
    assert "7.0 points" in shown["uniform"]
    assert "not measured" in shown["mgda"]


def test_errors_are_lost_in_percent(runs):
    for path in runs.rglob("summary.json"):
        summary = json.loads(path.read_text())
        lower = {"higher_is_better": {"clean": False, "noisy": False}, "units": {"clean": "ratio", "noisy": "ratio"}}
        path.write_text(json.dumps(summary | lower | {"clean_score": 1 - summary["clean_score"]}))
    scores = choosing.scores_of(collect(runs)).set_index("method")
    assert scores.loc["uniform", "lost"] == pytest.approx(88.6, abs=1)
    assert scores["rank"].to_dict() == {"excess": 1.0, "uniform": 2.0}


def test_a_method_is_added_to_those_measured_before(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(choosing, "SCORES", tmp_path / "choosing.csv")
    (tmp_path / "page.md").write_text("by hand\n")
    monkeypatch.setattr(choosing, "PAGE", replace(choosing.PAGE, path=tmp_path / "page.md", parts={}))
    choosing.main([str(runs)])
    for path in runs.rglob("summary.json"):
        summary = json.loads(path.read_text())
        better = {**summary, "method": "rlw", "label": "rlw", "clean_score": summary["clean_score"] + 0.02}
        path.write_text(json.dumps(better)) if "excess" in str(path) else path.unlink()
    choosing.main(["--add", str(runs)])
    once = choosing.SCORES.read_text()
    ranks = pd.read_csv(choosing.SCORES).set_index("method")["rank"]
    assert ranks.to_dict() == {"rlw": 1.0, "excess": 2.0, "uniform": 3.0}
    choosing.main(["--add", str(runs)])  # measured anew
    assert choosing.SCORES.read_text() == once


def test_a_run_that_has_diverged_does_not_make_a_method_look_good(runs):
    path = runs / "excess" / "0.8" / "2" / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps({**summary, "clean_score": None, "scores": {"clean": None, "noisy": None}}))
    scores = choosing.scores_of(collect(runs)).set_index("method")
    assert scores.loc["excess", ["with_noise", "lost"]].isna().all()
    assert scores.loc["excess", "rank"] == 2
    assert choosing.lost_to_noise(scores.reset_index(), "excess") == "not measured"


def test_groups_are_compared_by_seed(tmp_path, monkeypatch):
    lines = [
        "bad_records,method,seed,error",
        "none,uniform,0,5",
        "none,excess,0,5.5",
        "none,uniform,1,7",
        "none,excess,1,7",
    ]
    (tmp_path / "groups.csv").write_text("\n".join(lines))
    monkeypatch.setattr(choosing, "GROUPS", tmp_path / "groups.csv")
    assert choosing.groups_table().texts == [["none", "6.00", "6.25", "+0.25 ± 0.35"]]


def test_levels_that_cannot_be_compared_are_one_sentence(runs, capsys):
    for path in runs.rglob("0.0/*/summary.json"):
        path.unlink()
    with pytest.raises(SystemExit, match="2"):
        choosing.main([str(runs)])
    assert "the table compares 0 with one other level" in capsys.readouterr().err
