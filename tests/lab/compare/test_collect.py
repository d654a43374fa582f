"""From run folders to a table and back from a file."""

import csv
import json

import pandas as pd
import pytest

from excessmtl.lab.compare.collect import NESTED, collect, read_table, write_table
from report_data import made_up

SUMMARY = made_up("single", scores={"a": None}, units={}, weights=None, clean_weight=None)


def write(folder, **changes):
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps(SUMMARY | changes, ensure_ascii=False), encoding="utf-8")


def test_a_table_read_back_is_the_table_written(tmp_path):
    write(tmp_path / "alone")
    write(tmp_path / "weighted", method="mgda", label="mgda", weights={"a": 1.0}, clean_weight=1.0, options={"a": [1]})
    frame = collect(tmp_path)
    write_table(frame, tmp_path / "runs.csv")
    back = read_table(tmp_path / "runs.csv")
    assert {name: back[name].tolist() for name in NESTED} == {name: frame[name].tolist() for name in NESTED}
    assert back["weights"].tolist() == [{"a": 1.0}, None]
    pd.testing.assert_series_equal(back["noise"], frame["noise"])


def test_a_compressed_table_is_the_same_every_time_and_found_in_its_folder(tmp_path):
    write(tmp_path / "runs")
    frame = collect(tmp_path)
    for name in ("one", "two"):
        write_table(frame, tmp_path / "tables" / name / "runs.csv.gz")
    one, two = ((tmp_path / "tables" / name / "runs.csv.gz").read_bytes() for name in ("one", "two"))
    assert one == two
    back = collect(tmp_path / "tables")
    assert back["folder"].tolist() == ["one/runs", "two/runs"]
    assert back["scores"].tolist() == 2 * frame["scores"].tolist()


TEXTS = ['=LINK("http://a.b")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "'=1", "''+x", "'plain", "-7", "1e5", "NA", "007"]


@pytest.mark.parametrize("text", TEXTS)
def test_no_cell_of_a_table_is_a_formula_and_every_text_is_read_back(tmp_path, text):
    write(tmp_path / "=1", label=text, source=text, benchmark=text)
    write_table(collect(tmp_path), tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    for name in ("folder", "label", "source", "benchmark"):
        assert row[name][0] not in "=+-@\t\r" or float(row[name]) == -7
    back = read_table(tmp_path / "runs.csv").iloc[0]
    assert (back["folder"], back["label"], back["source"], back["benchmark"]) == ("=1", text, text, text)


def test_a_compressed_table_that_claims_gigabytes_is_refused(tmp_path, monkeypatch):
    write(tmp_path / "run")
    write_table(collect(tmp_path), tmp_path / "table" / "runs.csv.gz")
    monkeypatch.setattr("excessmtl.lab.compare.collect._LARGEST_TABLE", 100)
    with pytest.raises(ValueError, match=r"runs\.csv\.gz is not a table of runs \(it holds more than 100 bytes\)"):
        collect(tmp_path / "table")


@pytest.mark.parametrize("folder", ["/etc", "../../secret", "a/../../b", "..\\b"])
def test_a_table_that_points_outside_its_folder_is_refused(tmp_path, folder):
    write(tmp_path / "run")
    write_table(collect(tmp_path).assign(folder=folder), tmp_path / "table" / "runs.csv")
    with pytest.raises(
        ValueError, match=r"runs\.csv is not a table of runs \(folder must be a path below the table's own folder"
    ):
        collect(tmp_path / "table")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "much"}, "noise must be a number, found 'much'"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"epochs": None}, "epochs is missing in the summary"),
        ({"scores": [1]}, r"scores must be a mapping \(name: value\), found \[1\]"),
        ({"scores": {"a": "high"}}, "a of scores must be a number"),
        ({"scores": {"b": 1.0}}, r"primary_metric must name the tasks of scores, \['b'\], found \['a'\]"),
        ({"noisy_tasks": "b"}, "noisy_tasks must be a list, found"),
    ],
)
def test_odd_values_in_a_summary_are_named(tmp_path, changes, message):
    write(tmp_path / "run", **changes)
    with pytest.raises(ValueError, match=rf"run/summary\.json: {message}"):
        collect(tmp_path)
