"""From run folders to a table and back from a file."""

import json

import pandas as pd

from excessmtl.analysis.collect import NESTED, collect, read_table, write_table

SUMMARY = {
    "benchmark": "multimnist",
    "source": "made up",
    "label": "single",
    "method": "single",
    "options": {},
    "noise": 0.8,
    "noisy_tasks": ["b"],
    "seed": 0,
    "epochs": 1,
    "primary_metric": {"a": "accuracy"},
    "higher_is_better": {"a": True},
    "scores": {"a": None},
    "mean_scores": {"a": None},
    "metrics": {},
    "weights": None,
    "clean_weight": None,
}


def write(folder, **changes):
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps(SUMMARY | changes))


def test_a_table_read_back_is_the_table_written(tmp_path):
    write(tmp_path / "alone")
    write(tmp_path / "weighted", method="mgda", label="mgda", weights={"a": 1.0}, clean_weight=1.0, options={"a": [1]})
    frame = collect(tmp_path)
    write_table(frame, tmp_path / "runs.csv")
    back = read_table(tmp_path / "runs.csv")
    assert {name: back[name].tolist() for name in NESTED} == {name: frame[name].tolist() for name in NESTED}
    assert back["weights"].tolist() == [{"a": 1.0}, None]
    pd.testing.assert_series_equal(back["noise"], frame["noise"])


def test_a_run_without_a_label_is_called_by_its_method_and_options(tmp_path):
    write(tmp_path / "old", label=None, method="excess", options={"estimator": "paper"})
    assert collect(tmp_path)["label"].tolist() == ["excess estimator=paper"]
