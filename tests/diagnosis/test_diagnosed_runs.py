"""`excessmtl diagnose RUN`: a finished run, one that has just begun, one without held-out data."""

import csv
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from commands import done, excessmtl, refused
from excessmtl import lab
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.record import RunRecord
from excessmtl.lab.training.held_out import held_out_data
from excessmtl.lab.training.resolve import load_benchmark

TARGETS = ["price", "churn", "group"]


def table(path, rows=3000):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, 4))
    frame = pd.DataFrame(inputs, columns=list("abcd"))
    frame["price"] = inputs @ [1, -2, 1, 0.5]
    frame["churn"] = (inputs @ [2, 1, 0, -1] > 0).astype(int)
    frame["group"] = (inputs @ rng.normal(size=(4, 5))).argmax(1)
    frame.to_csv(path, index=False)
    return str(path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("diagnosis")
    settings = {"benchmark_options": {"targets": TARGETS}, "noise": 0.5, "noisy_tasks": ("price", "group")}
    lab.train(table(place / "table.csv"), out=place / "run", epochs=8, device="cpu", **settings)
    return place / "run"


def test_the_noisy_tasks_of_a_run_are_named(finished, tmp_path):
    printed = done("diagnose", finished, "--json", "--suspects", tmp_path / "suspects.csv")
    tasks = {task["task"]: task for task in json.loads(printed)}
    fields = {"task", "verdict", "noise_rate", "noise_rate_interval", "floor", "excess_risk", "reason"}
    assert all(fields <= set(task) for task in tasks.values())
    assert [tasks[name]["verdict"] for name in TARGETS] == ["noisy", "clean", "noisy"]
    assert len(tasks) == len(TARGETS)
    low, high = tasks["group"]["noise_rate_interval"]
    assert low <= 0.5 <= high
    assert abs(tasks["price"]["noise_rate"] - 0.5) < 0.1  # heavy tails explain a part of the added noise
    with (tmp_path / "suspects.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["task", "row", "label", "predicted", "margin", "noise_probability"]
    held_out = held_out_data(finished)
    labels = dict(zip(held_out.file_rows.tolist(), held_out.targets["group"].tolist(), strict=True))
    assert {int(row["row"]): float(row["label"]) for row in rows if row["task"] == "group"} == labels


def test_the_table_of_a_run_and_the_file_for_the_report(finished):
    printed = done("diagnose", finished, "--save")
    found = json.loads((finished / "diagnosis.json").read_text())
    kept, cosines = found["tasks"], np.array(found["conflict"]["cosines"])
    assert found["conflict"]["tasks"] == TARGETS
    assert cosines.diagonal() == pytest.approx(1)
    assert (cosines == cosines.T).all()
    assert [(task["task"], len(task["suspects"])) for task in kept] == [(name, 20) for name in TARGETS]
    assert [line.split()[0] for line in printed.splitlines()[:4]] == ["task", *TARGETS]


def test_held_out_labels_are_as_bad_as_the_training_labels_and_drawn_anew(finished):
    config = RunConfig.from_dict(RunRecord.read(finished / "config.yaml").config)
    clean = load_benchmark(config).validation.targets
    found = held_out_data(finished).targets
    assert (found["group"] != clean["group"]).float().mean() == pytest.approx(0.5 * 4 / 5, abs=0.06)
    assert (found["price"] != clean["price"]).float().mean() == pytest.approx(0.5, abs=0.01)
    assert torch.equal(found["churn"], clean["churn"])


def test_an_object_as_benchmark_and_no_held_out_data(tmp_path):
    config = RunConfig(table(tmp_path / "t.csv", 100), "uniform", benchmark_options={"targets": TARGETS})
    benchmark = load_benchmark(config)
    nothing = benchmark.validation.rows({name: torch.arange(0) for name in TARGETS})
    # Metrics of one's own make no kind of one's own.
    renamed = {task: replace(task.kind, metrics=(replace(task.kind.primary, unit="own"),)) for task in benchmark.tasks}
    tasks = tuple(replace(task, kind=kind) for task, kind in renamed.items())
    benchmark = replace(benchmark, validation=nothing, tasks=tasks)
    settings = {"epochs": 1, "device": "cpu", "noise": 0.2, "noisy_tasks": ("group",)}
    lab.train(benchmark, "uniform", out=tmp_path / "run", **settings)
    found = [(task.verdict, task.reason) for task in lab.diagnose(tmp_path / "run", benchmark).tasks]
    assert found == [("too little evidence", "there is no held-out label")] * 3


def test_parquet_needs_pyarrow(finished, tmp_path, monkeypatch):
    monkeypatch.setattr("excessmtl.lab.cli.diagnose.find_spec", lambda name: None)
    result = excessmtl("diagnose", finished, "--suspects", tmp_path / "suspects.parquet")
    refused(result, "needs pyarrow; run pip install pyarrow, or name a .csv file")
    assert not (tmp_path / "suspects.parquet").exists()


def test_what_cannot_be_diagnosed_is_one_sentence(finished, tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "config.yaml").write_bytes((finished / "config.yaml").read_bytes())
    for words, sentence in (
        ((tmp_path,), "holds no run"),
        ((begun,), "has not finished an epoch yet"),
        ((finished, "--suspects", tmp_path), "is a folder; name a file"),
    ):
        refused(excessmtl("diagnose", *words), sentence)


def test_crossval_predicts_every_training_sample_by_a_network_that_has_not_seen_it(tmp_path):
    path = table(tmp_path / "table.csv", 1200)
    words = ["crossval", path, "--targets", "churn,group", "--noise", "0.4", "--noisy-tasks", "group", "--epochs", "8"]
    words += ["--folds", "2", "--device", "cpu", "--json", "--out", tmp_path / "out", "--suspects", tmp_path / "s.csv"]
    printed = done(*words)
    config = RunConfig(path, "excess", benchmark_options={"targets": ["churn", "group"]})
    clean = load_benchmark(config).train.targets
    with np.load(tmp_path / "out" / "predictions.npz") as kept:
        assert kept["group/predictions"].shape == (len(clean["group"]), 5)
        noisy = kept["group/targets"]
        assert kept["churn/targets"].ravel().tolist() == clean["churn"].ravel().tolist()
        # In the order of the training samples: the noise is on a share of them, and the network sees through it.
        assert (noisy != clean["group"].numpy()).mean() == pytest.approx(0.4 * 4 / 5, abs=0.05)
        assert (kept["group/predictions"].argmax(1) == clean["group"].numpy()).mean() > 0.7
        given = pd.read_csv(path)["group"].to_numpy()
        added = given.copy()
        added[kept["file_rows"]] = noisy
    tasks = {task["task"]: task for task in json.loads(printed)}
    low, high = tasks["group"]["noise_rate_interval"]
    assert low <= 0.4 <= high
    assert tasks["churn"]["verdict"] == "clean"
    with (tmp_path / "s.csv").open() as file:
        worst = [int(row["row"]) for row in csv.DictReader(file) if row["task"] == "group"][:60]
    assert (added[worst] != given[worst]).mean() > 0.8
    refused(excessmtl(*words, "--noise", "0.2"), "was started with")


@pytest.mark.parametrize(("folds", "sentence"), [(1, "at least 2, found 1"), (90, "take fewer folds")])
def test_folds_that_do_not_fit(tmp_path, folds, sentence):
    with pytest.raises(ValueError, match=sentence):
        lab.crossval(
            table(tmp_path / "t.csv", 100), out=tmp_path / "o", folds=folds, benchmark_options={"targets": ["churn"]}
        )
    assert not (tmp_path / "o").exists()


def test_a_task_that_begins_like_a_formula_is_none_in_the_file_of_suspects(tmp_path):
    frame = pd.read_csv(table(tmp_path / "table.csv", rows=200)).rename(columns={"price": "=price"})
    frame.to_csv(tmp_path / "table.csv", index=False)
    options = {"targets": ["=price", "churn"]}
    lab.train(str(tmp_path / "table.csv"), out=tmp_path / "run", epochs=1, device="cpu", benchmark_options=options)
    done("diagnose", tmp_path / "run", "--suspects", tmp_path / "suspects.csv")
    assert set(pd.read_csv(tmp_path / "suspects.csv")["task"]) == {"'=price", "churn"}
