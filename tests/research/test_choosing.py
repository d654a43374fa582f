"""The tables of the page to choose by, from made-up runs."""

from dataclasses import replace

import pandas as pd
import pytest

from excessmtl.lab.compare.collect import write_table
from report_data import ACCURACY, ERROR, run, table
from research import choosing

CLEAN = {("excess", 0.0): 0.9, ("excess", 0.8): 0.89, ("uniform", 0.0): 0.92, ("uniform", 0.8): 0.85}


def runs(clean=CLEAN, metrics=ACCURACY):
    """Three seeds of every method and noise level, by the score of the clean task."""
    return table(
        *(
            run(method, noise, seed, {"clean": score + seed / 1000, "noisy": 0.5}, metrics)
            for (method, noise), score in clean.items()
            for seed in range(3)
        )
    )


def lost(frame):
    return choosing.scores_of(frame).set_index("method")["lost"].to_dict()


def test_what_noise_costs_the_clean_tasks():
    assert lost(runs()) == {"excess": 1.0, "uniform": 7.0}
    shown = {row[0].split("`")[1]: row for row in choosing.methods_table(choosing.scores_of(runs())).texts}
    assert "7.0 points" in shown["uniform"]
    assert "not measured" in shown["mgda"]


def test_errors_are_lost_in_percent():
    errors = runs({key: 1 - score for key, score in CLEAN.items()}, ERROR)
    assert lost(errors)["uniform"] == pytest.approx(86.4, abs=0.1)  # 0.151 after 0.081


def test_a_run_that_has_diverged_does_not_make_a_method_look_good():
    broken = {("excess", 0.0): 0.9, ("excess", 0.8): float("nan"), ("uniform", 0.0): 0.9, ("uniform", 0.8): 0.8}
    assert choosing.lost_to_noise(choosing.scores_of(runs(broken)), "excess") == "diverged"


def test_the_command_writes_the_scores_of_the_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(choosing, "SCORES", tmp_path / "choosing.csv")
    (tmp_path / "page.md").write_text("by hand\n")
    monkeypatch.setattr(choosing, "PAGE", replace(choosing.PAGE, path=tmp_path / "page.md", parts={}))
    write_table(runs(), tmp_path / "runs.csv")
    choosing.main(tmp_path)
    assert pd.read_csv(choosing.SCORES)["lost"].tolist() == [1.0, 7.0]
    again = {("excess + robust loss", 0.0): 0.9, ("excess + robust loss", 0.8): 0.9, **CLEAN, ("excess", 0.8): 0.88}
    write_table(runs(again).query("label != 'uniform'"), tmp_path / "runs.csv")
    choosing.main(tmp_path)
    scores = pd.read_csv(choosing.SCORES)
    assert scores["lost"].tolist() == [2.0, 0.0, 7.0]
    assert choosing.lost_to_noise(scores, "excess") == "2.0 points; with robust losses 0.0 points"


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


def test_runs_that_cannot_be_compared_are_one_sentence(tmp_path):
    write_table(runs().query("noise > 0"), tmp_path / "runs.csv")
    with pytest.raises(ValueError, match="no method has runs without noise and with it"):
        choosing.main(tmp_path)
