"""One process at a time trains in a folder; a second command without --out gets a folder of its own."""

import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from commands import ENVIRONMENT, done, excessmtl, refused
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import Run, train

CONFIG = RunConfig("simulated-arm", "uniform", epochs=2, limit_batches=2, device="cpu")
SMALL = ["--method", "uniform", "--epochs", "1", "--limit-batches", "1", "--device", "cpu"]


@pytest.mark.slow
def test_two_processes_do_not_train_in_one_folder(tmp_path):
    arguments = ["train", "simulated-arm", "--epochs", 5000, "--device", "cpu", "--resume", "--out", tmp_path / "run"]
    command = [sys.executable, "-m", "excessmtl", *map(str, arguments)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    try:
        deadline = time.monotonic() + 100
        while not (tmp_path / "run" / "checkpoint" / "latest.json").exists():
            assert time.monotonic() < deadline
            assert first.poll() is None
            time.sleep(0.1)
        refused(excessmtl(*arguments), "error: another process is training in")
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    # What a killed process held is free again.
    config = replace(CONFIG, method="excess", epochs=5000, limit_batches=None)
    Run(config, tmp_path / "run", resume=True).folder.close()


def test_the_folder_is_free_after_a_run_and_after_a_failure(tmp_path, monkeypatch):
    train(CONFIG, tmp_path / "run")
    train(CONFIG, tmp_path / "run", resume=True)
    monkeypatch.setattr(Run, "_epoch", lambda self, epoch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(CONFIG, tmp_path / "failed")
    monkeypatch.undo()
    assert train(CONFIG, tmp_path / "failed", resume=True)["completed"]
    assert not list(tmp_path.rglob(".*"))


def test_without_out_every_run_gets_a_folder_named_after_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "runs/simulated-arm-uniform-noise-0-seed-0"
    # The last one goes on with the second, which is finished.
    for more, folder in (([], name), ([], f"{name}-2"), (["--resume"], f"{name}-2"), (["--option", "scale=mean"], "")):
        printed = done("train", "simulated-arm", *SMALL, *more)
        assert f"run folder: {folder or name.replace('uniform', 'uniform-scale=mean')}\n" in printed


@pytest.mark.parametrize("name", ["x/[/b]", "[red]", ":smile:", "[link=x]y"])
def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert f"run folder: {name}" in done("train", "simulated-arm", *SMALL, "--out", name)
    assert (tmp_path / name / "summary.json").is_file()
