"""The tables of the page to choose by, from made-up runs."""

from dataclasses import replace

import pandas as pd
import pytest

from excessmtl.lab.compare.collect import write_table
from report_data import ACCURACY, ERROR, run, table
from research import choosing

PLAIN = {"uniform": 0.9, "excess": 0.92, "mgda": 0.85, "static": 0.9}


def runs(scores, noise=0.8, metrics=ACCURACY, benchmark="multimnist", **changes):
    """Three seeds of every method, by the score of its clean task; that of the noisy one is 0.5."""
    return table(
        *(
            run(method, noise, seed, {"clean": score + seed / 1000, "noisy": 0.5}, metrics, benchmark=benchmark)
            | {"learning_rate": 0.001, **changes}
            for method, score in scores.items()
            for seed in range(3)
        )
    )


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Method -> the cells of each table, from these runs."""
    monkeypatch.setattr(choosing, "SCORES", tmp_path / "choosing.csv")
    (tmp_path / "page.md").write_text("by hand\n")
    monkeypatch.setattr(choosing, "PAGE", replace(choosing.PAGE, path=tmp_path / "page.md", parts={}))

    def made(*frames):
        for place, frame in enumerate(frames):
            (tmp_path / str(place)).mkdir()
            write_table(frame, tmp_path / str(place) / "runs.csv")
        choosing.main([tmp_path / str(place) for place in range(len(frames))])
        tables = [table.texts for table in (choosing.methods_table(), choosing.scores_table())]
        return [{row[0].split("`")[1]: row[1:] for row in rows} for rows in tables]

    return made


def test_methods_stand_against_uniform_with_the_same_losses(page):
    robust = {"uniform": 0.95, "excess": 0.92}
    errors = runs({"uniform": 0.1, "excess": 0.08}, 0.0, ERROR, "sarcos")
    methods, scores = page(runs(PLAIN), runs(robust, loss="robust"), errors)
    shown = {method: cells[2:5] for method, cells in methods.items()}
    assert shown["excess"] == ["–/+3/–", "+2.0/–/–", "−3.0/–/–"]
    assert shown["mgda"] == ["not measured", "−5.0/–/–", "not measured"]
    assert shown["static"][1] == "=/–/–"
    assert scores["excess"] == ["**92.1**/**71.0**", "*92.1*/*71.0*", "–/–", "–/–"]
    assert list(scores) == ["excess", "uniform"]  # the others are better nowhere
    written = pd.read_csv(choosing.SCORES).query("method == 'excess' and loss == 'robust' and tasks == 'clean'")
    assert written[["score", "learning_rate", "seeds", "difference", "verdict"]].to_numpy().tolist() == [
        [0.921, 0.001, 3, -3.0, "worse"]
    ]


def test_a_run_that_has_diverged_does_not_make_a_method_look_good(page):
    both = runs({"uniform": float("nan"), "excess": float("nan")}, loss="robust")
    methods, scores = page(runs({**PLAIN, "excess": float("nan")}), both)
    assert methods["excess"][3:5] == ["diverged/–/–", "diverged/–/–"]
    assert scores["excess"][:2] == ["*diverged*/*diverged*", "diverged/diverged"]


def test_two_seeds_decide_nothing(page):
    methods, _ = page(runs(PLAIN).query("seed < 2"))
    assert methods["excess"][3] == "?/–/–"


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


def test_runs_that_cannot_be_compared_are_one_sentence():
    with pytest.raises(ValueError, match="no method has runs beside those of `uniform`"):
        choosing.scores_of(runs({"excess": 0.9}))
