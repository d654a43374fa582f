"""The picture of `trust` from a table of runs."""

from pathlib import Path

import pandas as pd
import pytest

from research.trust import draw, front, main

DOCS = Path(__file__).parents[2] / "docs"


def runs():
    rows = [
        ("a", "plain", "uniform", {}, 0.8, 0.7),
        ("a", "plain", "excess", {"trust": 1}, 0.9, 0.6),
        ("a", "plain", "excess", {"trust": 1}, 0.7, 0.8),
        ("a", "robust", "excess", {"trust": 1}, 0.9, 0.9),
    ]
    frame = pd.DataFrame(rows, columns=["benchmark", "loss", "method", "options", "clean_score", "overall_score"])
    return frame.assign(higher_is_better=[{"x": True}] * len(frame))


def test_a_point_is_the_mean_over_the_seeds():
    points = front(runs()).set_index(["loss", "method"])
    assert points.loc[("plain", "excess"), "clean_score"] == pytest.approx(0.8)
    assert points.loc[("plain", "excess"), "seeds"] == 2
    assert pd.isna(points.loc[("plain", "uniform"), "trust"])
    lines = draw(front(runs())).axes[0].get_lines()
    assert [len(line.get_xdata()) for line in lines] == [1, 1, 1]


def test_the_published_numbers_name_every_trust_once():
    published = pd.read_csv(DOCS / "data/robustness/trust.csv")
    assert not published.duplicated(["benchmark", "loss", "method", "trust"]).any()
    assert published.groupby("benchmark").size().tolist() == [9, 9]


def test_a_folder_without_runs_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path)])
    assert "holds no finished run" in capsys.readouterr().err
