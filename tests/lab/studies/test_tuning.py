"""Tuning: what is tried, what is chosen, and that a study goes on from there."""

import json
import math

import pandas as pd
import pytest

from excessmtl import lab
from excessmtl.lab.studies.study import expand, folder_of
from excessmtl.lab.studies.sweep import next_runs, tuning_folder
from report_data import finish

PLAIN = {
    "benchmarks": ["simulated-arm", {"benchmark": "simulated-arm", "noise_kind": "outliers", "noise": [0.4]}],
    "methods": ["excess", "uniform"],
    "noise": [0, 0.4],
    "seeds": 3,
    "tune": {"learning_rate": [0.001, 0.003], "weight_decay": [0, 0.1]},
    "tune_seeds": 2,
}


def test_every_combination_is_tried_for_each_setting_level_and_method():
    study = expand(PLAIN, "s")
    tries = study.tune.runs(study.runs)
    assert (len(study.runs), len(tries)) == (3 * 2 * 3, 3 * 2 * 4 * 2)
    assert len({folder_of(config) for config in tries}) == len(tries)
    assert {config.seed for config in tries} == {1000, 1001}
    assert all(config.noisy_validation for config in tries)


def test_the_lowest_mean_validation_loss_is_chosen(tmp_path):
    study = expand(PLAIN, "s")
    tries = study.tune.runs(study.runs)

    def loss(config):
        if config.method == "uniform":  # better on average, though not on the second seed
            return {0.003: 0.1 if config.seed == 1000 else 0.6, 0.001: 0.5}[config.learning_rate] + config.weight_decay
        return None if config.weight_decay == 0 else config.learning_rate  # None: diverged

    finish(tries, tmp_path, lambda config: {"validation_error": loss(config)})
    runs, table = study.tune.choose(study.runs, tmp_path)
    chosen = {(config.method, config.learning_rate, config.weight_decay) for config in runs}
    assert chosen == {("uniform", 0.003, 0), ("excess", 0.001, 0.1)}
    assert [config.seed for config in runs] == [config.seed for config in study.runs]
    assert len(table) == 24
    assert table["chosen"].sum() == 6
    best = table[table["chosen"] & (table["label"] == "uniform")]
    assert best["validation_error"].tolist() == pytest.approx([0.35] * 3)
    assert math.isinf(table["validation_error"].max())


def test_a_point_that_has_not_finished_is_no_choice(tmp_path):
    study = expand(PLAIN, "s")
    tries = study.tune.runs(study.runs)
    half = [config for config in tries if config.method == "uniform" and config.learning_rate == 0.003]
    some = [*half, next(config for config in tries if config.method == "uniform")]
    finish(some, tmp_path, lambda config: {"validation_error": 0.5})
    runs, _ = study.tune.choose(study.runs, tmp_path)
    assert {(config.method, config.learning_rate) for config in runs} == {("uniform", 0.003)}


def test_where_no_run_has_a_validation_error_nothing_is_chosen(tmp_path):
    study = expand(PLAIN, "s")
    finish(study.tune.runs(study.runs), tmp_path, lambda config: {"validation_error": None})
    with pytest.raises(ValueError, match="no run has a finite validation error; add validation samples"):
        study.tune.choose(study.runs, tmp_path)


def test_a_tuned_sweep_runs_resumes_and_reports(tmp_path):
    out = tmp_path / "out"
    fields = {"epochs": 1, "limit_batches": 1, "batch_size": 8, "device": "cpu"}
    grid = {"learning_rate": [100.0, 1e-9]}  # a step of the first throws the network far off
    first = lab.sweep(["simulated-arm"], ["uniform"], out=out, tune=grid, jobs=1, **fields)
    assert (len(first.finished), first.failed) == (1, ())
    assert len(list(tuning_folder(out).rglob("summary.json"))) == 2
    assert pd.read_csv(out / "chosen.csv")["chosen"].tolist() == [False, True]
    (summary,) = out.rglob("summary.json")
    assert json.loads(summary.read_text())["learning_rate"] == 1e-9
    assert json.loads(summary.read_text())["noisy_validation"] is True
    again = lab.sweep(["simulated-arm"], ["uniform"], out=out, tune=grid, jobs=1, **fields)
    assert (again.finished, len(again.before)) == ((), 1)
    study = expand({"benchmarks": ["simulated-arm"], "methods": ["uniform"], "tune": grid, "settings": fields}, "out")
    assert next_runs(study, out) == ([], 1, out)
    left, count, place = next_runs(study, tmp_path / "other")
    assert (len(left), count, place) == (2, 2, tmp_path / "other-tuning")
