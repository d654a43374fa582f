"""Suspicious labels of a CSV file are named by the rows of that file: somebody will relabel them."""

import json

import numpy as np
import pandas as pd
import pytest

from commands import done
from excessmtl import lab

CLASSES = ["high", "low", "mid"]
"""Sorted: class 0 is "high"."""
PLANTED = 60


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with own.csv, whose column `level` has wrong labels in these rows, and a run on it."""
    place = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(900, 3))
    classes = np.digitize(inputs @ [2.0, -1.0, 1.0], [-1, 1])
    planted = rng.choice(900, PLANTED, replace=False)
    classes[planted] = (classes[planted] + rng.integers(1, 3, PLANTED)) % 3
    frame = pd.DataFrame(inputs, columns=["a", "b", "c"]).assign(level=np.array(["low", "mid", "high"])[classes])
    frame["sum"] = inputs.sum(1)
    frame["key"] = [f"k{row}" for row in range(900)]
    unlabelled = np.setdiff1d(np.arange(0, 900, 7), planted)
    frame.loc[unlabelled, "level"] = None  # samples without a label must not shift the numbers of the others
    frame.to_csv(place / "own.csv", index=False)
    words = ["--targets", "level,sum", "--id", "key", "--epochs", "25", "--device", "cpu", "--out", place / "run"]
    done("train", place / "own.csv", *words)
    return place, set(planted.tolist())


def check(rows, labels, path, planted, looked_at):
    """The rows have these labels in the file, and most of the planted ones are at the top."""
    assert pd.read_csv(path)["level"].iloc[rows].tolist() == list(labels)
    there = planted & set(looked_at)
    assert len(there) >= 5
    assert len(there & set(rows[: len(there)])) > 0.7 * len(there)


def test_diagnose_names_rows_of_the_file(world):
    place, planted = world
    done("diagnose", place / "run", "--suspects", place / "s.csv", "--save")
    found = pd.read_csv(place / "s.csv").query("task == 'level'")
    rows = found["row"].tolist()
    assert len(set(rows)) == len(rows) > 100
    check(rows, found["label"], place / "own.csv", planted, rows)
    assert found["id"].tolist() == [f"k{row}" for row in rows]
    assert set(found["predicted"]) == set(CLASSES)
    sums = pd.read_csv(place / "s.csv").query("task == 'sum'")
    in_the_file = pd.read_csv(place / "own.csv")["sum"].iloc[sums["row"]]
    np.testing.assert_allclose(sums["label"].astype(float), in_the_file, atol=1e-5)
    assert np.corrcoef(sums["predicted"].astype(float), in_the_file)[0, 1] > 0.9

    kept = json.loads((place / "run" / "diagnosis.json").read_text())["tasks"][0]["suspects"]
    assert [(label["row"], label["id"]) for label in kept] == [(row, f"k{row}") for row in rows[:20]]
    assert [label.row for label in lab.diagnose(place / "run").suspects("level")] == rows[:20]
    done("report", place / "run", "-o", place / "r.html")
    page = (place / "r.html").read_text()
    assert '<th scope="col">row</th>' in page
    assert all(f"<tr><td>{row}</td><td>k{row}</td>" in page for row in rows[:20])


def test_crossval_names_rows_of_the_file(world):
    place, planted = world
    words = ["--targets", "level,sum", "--id", "key", "--epochs", "25", "--folds", "2", "--device", "cpu"]
    done("crossval", place / "own.csv", *words, "--out", place / "folds", "--suspects", place / "c.csv")
    found = pd.read_csv(place / "c.csv").query("task == 'level'")
    rows = found["row"].tolist()
    assert len(set(rows)) == len(rows) > 500
    check(rows, found["label"], place / "own.csv", planted, rows)
    assert found["id"].tolist() == [f"k{row}" for row in rows]
    with np.load(place / "folds" / "predictions.npz") as kept:
        frame = pd.read_csv(place / "own.csv").iloc[kept["file_rows"]]
        labelled = frame["level"].notna().to_numpy()
        numbers = kept["level/targets"][labelled].astype(int)
        assert frame["level"][labelled].tolist() == [CLASSES[number] for number in numbers]
        assert frame["key"].tolist() == kept["ids"].tolist()


def test_folds_are_no_benchmarks_of_a_report(world):
    place, _ = world
    words = ["--targets", "level,sum", "--id", "key", "--epochs", "1", "--folds", "2", "--device", "cpu"]
    done("crossval", place / "own.csv", *words, "--out", place / "short")
    summary = json.loads((place / "short" / "fold-1" / "summary.json").read_text())
    assert summary["source"].startswith("own.csv, 900 rows, 3 input columns; fold 1 of 2 (data ")
    assert lab.collect(place)["folder"].tolist() == ["run"]
    with pytest.raises(ValueError, match="holds the folds of a cross-validation and no run on all training data"):
        lab.collect(place / "short")


def test_samples_of_other_benchmarks_are_numbered_as_in_their_split(tmp_path):
    settings = {"epochs": 1, "device": "cpu", "limit_batches": 2, "batch_size": 8}
    lab.train("simulated-arm", "uniform", out=tmp_path / "run", **settings)
    done("diagnose", tmp_path / "run", "--suspects", tmp_path / "s.csv")
    found = pd.read_csv(tmp_path / "s.csv")
    assert list(found)[:2] == ["task", "sample"]
    assert lab.diagnose(tmp_path / "run").suspects(found["task"][0], 1)[0].row is None
