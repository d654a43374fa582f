"""Whole runs as a user makes them: processes that are killed, folders that are looked into."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from commands import ENVIRONMENT, done, excessmtl, refused
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.record import kind_of
from excessmtl.lab.training.loop import train
from report_data import steps_of, without_time

SMALL = {"epochs": 2, "limit_batches": 3, "batch_size": 64, "device": "cpu"}

KILLED = ["train", "digit-domains", "--method", "gradnorm", "--noise", 0.5, "--epochs", 6, "--limit-batches", 4]
KILLED += ["--device", "cpu", "--batch-size", 32, "--optimiser", "adamw"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was not killed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done(*KILLED, "--out", folder)
    return folder


@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path, whole, rows):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "excessmtl", *map(str, KILLED), "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    deadline = time.monotonic() + 200
    while finished_epochs(folder) < rows:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "summary.json").exists()
    done(*KILLED, "--out", folder, "--resume")
    summaries = [json.loads((place / "summary.json").read_text()) for place in (whole, folder)]
    assert without_time(summaries[0]) == without_time(summaries[1])
    assert (whole / "metrics.csv").read_text() == (folder / "metrics.csv").read_text()
    first, second = steps_of(whole), steps_of(folder)
    for key in first:
        np.testing.assert_array_equal(first[key], second[key])
    assert not list(folder.rglob(".*"))


def finished_epochs(folder):
    """So many have been written down."""
    table = folder / "metrics.csv"
    return len(table.read_text().splitlines()) - 1 if table.exists() else 0


def test_a_finished_run_is_trained_for_more_epochs(tmp_path):
    config = RunConfig("multimnist", "excess", noise=0.8, **{**SMALL, "epochs": 2})
    whole = train(config, tmp_path / "whole")
    assert train(replace(config, epochs=1), tmp_path / "parts")["epochs"] == 1
    assert train(replace(config, epochs=None), tmp_path / "parts", resume=True)["epochs"] == 1
    assert without_time(train(config, tmp_path / "parts", resume=True)) == without_time(whole)
    assert without_time(train(replace(config, epochs=None), tmp_path / "parts", resume=True)) == without_time(whole)
    assert (tmp_path / "whole/metrics.csv").read_text() == (tmp_path / "parts/metrics.csv").read_text()
    with pytest.raises(ValueError, match=r"epochs is 1, but .* only more epochs are possible"):
        train(replace(config, epochs=1), tmp_path / "parts", resume=True)
    cosine = replace(config, schedule="cosine")
    train(cosine, tmp_path / "cosine")
    with pytest.raises(ValueError, match="only with a constant learning rate"):
        train(replace(cosine, epochs=3), tmp_path / "cosine", resume=True)


def test_a_run_of_an_earlier_version_goes_on_if_its_network_is_still_there(tmp_path):
    config = RunConfig("multimnist", "uniform", **SMALL)
    whole = train(replace(config, epochs=3), tmp_path / "whole")
    train(config, tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    path.write_text("architecture: hard\nstrategy: fsdp\nreplay: true\n" + path.read_text())
    assert train(replace(config, epochs=3), tmp_path / "run", resume=True)["scores"] == whole["scores"]
    assert kind_of({**whole, "settings": {**whole["settings"], "architecture": "hard"}}) == kind_of(whole)
    path.write_text("architecture: mmoe\n" + path.read_text())
    with pytest.raises(ValueError, match="architecture is 'mmoe', which only earlier versions train"):
        train(config, tmp_path / "run", resume=True)


def test_ctrl_c_leaves_a_resumable_run(tmp_path):
    arguments = ["train", "multimnist", "--epochs", "200", "--limit-batches", "2", "--device", "cpu"]
    command = [sys.executable, "-m", "excessmtl", *arguments, "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        # In the background of a script SIGINT is ignored, and children inherit that; at a terminal it is not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoint" / "latest.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command with --resume goes on" in stderr
    assert "Traceback" not in stderr


def test_a_run_of_another_kind_is_not_overwritten(tmp_path):
    train(RunConfig("multimnist", "uniform", **SMALL), tmp_path / "run")
    with pytest.raises(ValueError, match="already holds a run"):
        train(RunConfig("multimnist", "uniform", **SMALL), tmp_path / "run")
    with pytest.raises(ValueError, match="method is 'excess', but the run"):
        train(RunConfig("multimnist", "excess", **SMALL), tmp_path / "run", resume=True)


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    config = RunConfig("multimnist", "uniform", **SMALL)
    real = os.fsync
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        train(config, tmp_path / "run")
    monkeypatch.undo()
    assert not list((tmp_path / "run").rglob(".*"))
    assert train(config, tmp_path / "run", resume=True)["completed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "multimnits"], "unknown benchmark 'multimnits'"),
        (["train", "multimnist", "--noise", "1.5"], "noise must be at most 1, found 1.5"),
        (["train", "multimnist", "--noise", "nan"], "noise must be a finite number, found nan"),
        (["train", "multimnist", "--noise-kind", "gamma"], "noise_kind must be one of 'uniform', 'pair'"),
        (["train", "multimnist", "--noisy-tasks", "left"], "unknown task 'left'"),
        (["train", "multimnist", "--epochs", "0"], "epochs must be at least 1"),
        (["train", "multimnist", "--option", "step_size=1"], "step_size is not an option"),
        (["train", "multimnist", "--option", "step_size"], "name=value"),
        (["train", "multimnist", "--benchmark-option", "colour=1"], "not an option of 'multimnist'"),
        (["train", "multimnist", "--benchmark-option", "canvas=[36]"], "canvas of 'multimnist' must be a whole number"),
        (["train", "synthetic-rooms", "--benchmark-option", "augment=1"], "must be true or false, found 1"),
        (["train", "simulated-arm", "--benchmark-option", "size=3"], "must be a word or a text in quotes"),
        (["train", "simulated-arm", "--benchmark-option", "size=large"], "size is 'large': choose one of small, paper"),
        (["train", "multimnist", "--option", "estimator={a"], "neither a word, a number nor a list"),
        (["train", "multimnist", "--method", "cagrad", "--option", "c=much"], "c must be a number, found 'much'"),
        (["train", "multimnist", "--option", "protect={left: 0.5}"], "protect names unknown task 'left'"),
        (["train", "multimnist", "--seed", "-1"], "seed must be"),
        (["train", "multimnist", "--seed", "99999999999999999999"], "seed must be"),
        (["train", "multimnist", "--learning-rate", "inf"], "learning_rate must be a finite number, found inf"),
        (["train", "multimnist", "--device", "cuda"], "device 'cuda' is not available on this machine"),
        (["train", "multimnist", "--device", "cpu", "--precision", "16-mixed"], "'16-mixed' needs a CUDA device"),
        (["train", "multimnist", "--precision", "16-mixed"], "'16-mixed' needs a CUDA device"),
        (["train", "multimnist", "--device", "tpu9"], "device must be one of 'auto', 'cpu', 'cuda' or 'mps'"),
        (["data", "get", "mnits"], "mnits"),
        (["data", "where", "mnist"], "mnist is not available"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(tmp_path, monkeypatch, arguments, message):
    monkeypatch.setenv("EXCESSMTL_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = ["--out", tmp_path / "run"] if arguments[0] == "train" else []
    refused(excessmtl(*arguments, *out), message)
    assert not (tmp_path / "run").exists()
