"""Runs that meet what real machines have in store."""

import csv
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from commands import done, excessmtl, refused
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.folder import RunFolder
from excessmtl.lab.training import loop
from excessmtl.lab.training.loop import Run, train
from report_data import steps_of

SMALL = {"epochs": 3, "limit_batches": 2, "batch_size": 32, "device": "cpu"}
ARGUMENTS = ["train", "multimnist", "--method", "uniform", "--epochs", "3", "--limit-batches", "2"]
ARGUMENTS += ["--batch-size", "32", "--device", "cpu"]


class Killed(BaseException):
    """Nothing of ours catches it, so nothing is tidied up that a SIGKILL would not leave tidy."""


@contextmanager
def killed_after(epoch):
    """A run in here is killed when the checkpoint of this epoch is written."""
    real = Run._save

    def save(self, number):
        real(self, number)
        if number == epoch:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "_save", save)
        with pytest.raises(Killed):
            yield


def tables(folder):
    return list(csv.DictReader((folder / "metrics.csv").read_text().splitlines())), steps_of(folder)


def events(folder):
    """(tag, step) of every event on disk, as often as it is there."""
    files = (folder / "tensorboard").glob("events.out.tfevents.*")
    found = [event for file in files for event in EventFileLoader(str(file)).Load()]
    return [(value.tag, event.step) for event in found for value in event.summary.value]


@pytest.mark.parametrize("table", ["write_metrics", "write_steps"])
@pytest.mark.parametrize("epoch", [0, 2])
def test_tables_follow_the_checkpoint_after_a_kill_between_their_writes(tmp_path, monkeypatch, table, epoch):
    config = RunConfig("multimnist", "uniform", **SMALL)
    train(config, tmp_path / "whole")
    real, calls = getattr(RunFolder, table), []

    def killed(self, *args):
        calls.append(args)
        if len(calls) == epoch + 1:
            raise Killed
        real(self, *args)

    monkeypatch.setattr(RunFolder, table, killed)
    with pytest.raises(Killed):
        train(config, tmp_path / "run")
    monkeypatch.undo()
    train(config, tmp_path / "run", resume=True)
    whole, run = tables(tmp_path / "whole"), tables(tmp_path / "run")
    assert whole[0] == run[0]
    for key in whole[1]:
        np.testing.assert_array_equal(whole[1][key], run[1][key])


def test_tensorboard_has_every_epoch_once_however_often_a_run_is_resumed(tmp_path):
    config = RunConfig("multimnist", "uniform", **SMALL)
    for last in (0, 1):
        with killed_after(last):
            train(config, tmp_path / "run", resume=True)
    train(config, tmp_path / "run", resume=True)
    train(config, tmp_path / "run", resume=True)
    found = events(tmp_path / "run")
    tags = {tag for tag, _ in found}
    assert "test/top_left/accuracy" in tags
    assert sorted(found) == sorted((tag, step) for tag in tags for step in range(3))


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    config = RunConfig("multimnist", "uniform", **SMALL)
    summary = train(config, tmp_path / "run")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}
    monkeypatch.setattr(Run, "_epoch", lambda *_: pytest.fail("trained again"))
    assert train(config, tmp_path / "run", resume=True) == summary
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()} == files
    assert "uniform on multimnist" in done(*ARGUMENTS, "--resume", "--out", tmp_path / "run")


def test_what_a_killed_process_had_begun_to_write_is_no_obstacle(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.yaml.0123456789ab").write_text("bench")
    summary = train(RunConfig("multimnist", "uniform", **SMALL), folder, resume=True)
    assert summary["completed"]
    (folder / "summary.json").unlink()
    (folder / "checkpoint" / ".epoch-00002.pt.0123456789ab").write_bytes(b"half")
    assert train(RunConfig("multimnist", "uniform", **SMALL), folder, resume=True)["scores"] == summary["scores"]
    assert not list(folder.rglob(".*"))


def test_config_is_resolved_to_the_last_option(tmp_path):
    train(RunConfig("multimnist", "excess", seed=3, noise=0.4, **SMALL), tmp_path / "run")
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (config["seed"], config["noise_seed"], config["device"]) == (3, 3, "cpu")
    assert (config["noisy_tasks"], config["learning_rate"]) == (["bottom_right"], 1e-3)
    assert config["benchmark_options"] == {"canvas": 36, "pairs": None, "bundled": False}
    assert config["source"].startswith("bundled digits")
    options = config["method_options"]
    assert (options["heads"], options["every"], options["scale"], options["decay"]) == ("unweighted", 1, "sum", 0.99)
    assert {"python", "excessmtl", "torch", "lightning", "numpy"} <= set(config["versions"])
    assert all(config["versions"].values())
    assert train(RunConfig.from_dict(config), tmp_path / "run", resume=True)["seed"] == 3


def test_resume_notices_other_data_and_other_defaults(tmp_path):
    config = RunConfig("multimnist", "uniform", **SMALL)
    train(config, tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    original = path.read_text()
    for name in ("bundled digits", "scale: sum"):
        assert name in original
        path.write_text(original.replace(name, "MNIST" if name == "bundled digits" else "scale: 1.0"))
        with pytest.raises(ValueError, match="was started with"):
            train(config, tmp_path / "run", resume=True)
    path.write_text("{")
    refused(excessmtl(*ARGUMENTS, "--resume", "--out", tmp_path / "run"), "is not the config.yaml of a run")


@pytest.mark.parametrize(
    "method",
    ["excess", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gradnorm", "mgda", "moml", "single"))],
)
def test_bf16_trains_and_resumes_exactly(tmp_path, method):
    config = RunConfig("multimnist", method, noise=0.8, precision="bf16-mixed", **SMALL)
    whole = train(config, tmp_path / "whole")
    assert all(np.isfinite(score) for score in whole["scores"].values())
    with killed_after(0):
        train(config, tmp_path / "parts")
    assert train(config, tmp_path / "parts", resume=True)["metrics"] == whole["metrics"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", ["excess", "mgda", "single"])
@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed", "32-true"])
def test_cuda(tmp_path, method, precision):
    small = {**SMALL, "device": "cuda", "limit_batches": 20}
    summary = train(RunConfig("multimnist", method, precision=precision, **small), tmp_path / "run")
    assert all(score > 0.1 for score in summary["scores"].values())


def test_out_where_no_run_can_be(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    for place, words in (("file", "exists and is not a run"), ("file/below", "Not a directory")):
        refused(excessmtl(*ARGUMENTS, "--out", tmp_path / place), words)
    refused(excessmtl(*ARGUMENTS, "--out", tmp_path / "folder"), "exists and is not a run")
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["thesis.tex"]
    real = Path.open

    def read_only(self, mode="r", *args, **kwargs):
        if "x" in mode or "w" in mode:
            raise OSError(30, "Read-only file system", str(self))
        return real(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", read_only)
    refused(excessmtl(*ARGUMENTS, "--out", tmp_path / "run"), "Read-only file system")


def test_a_run_that_diverges_says_so_in_valid_json(tmp_path, monkeypatch):
    real = loop.scores
    monkeypatch.setattr(loop, "scores", lambda *args: dict.fromkeys(real(*args), float("nan")))
    assert "diverged" in done(*ARGUMENTS, "--out", tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(), parse_constant=pytest.fail)
    assert summary["scores"] == {"top_left": None, "bottom_right": None}
