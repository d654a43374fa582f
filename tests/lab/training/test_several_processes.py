"""Two processes with half of every batch each train as one process does with the whole batch."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import process_worker
import pytest

import commands
from excessmtl import lab
from report_data import steps_of

HERE = Path(__file__).parent
ENVIRONMENT = commands.ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The runs of two processes, all cases started by torchrun once."""
    folder = tmp_path_factory.mktemp("together")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(HERE / "process_worker.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return folder


def compare(alone, together):
    """Steps, summaries and networks, to rounding: two processes add up in another order."""
    one, two = steps_of(alone), steps_of(together)
    for name in ("weights", "losses", "excess_risks"):
        np.testing.assert_allclose(two[name], one[name], rtol=2e-3, atol=2e-5, err_msg=name)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (alone, together)]
    assert summaries[1]["metrics"] == pytest.approx(summaries[0]["metrics"], rel=2e-3)
    networks = [lab.load(folder, trust=True).state_dict() for folder in (alone, together)]
    assert list(networks[0]) == list(networks[1])
    for name in networks[0]:
        np.testing.assert_allclose(networks[1][name], networks[0][name], rtol=2e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("case", process_worker.CASES)
def test_two_processes_train_as_one(tmp_path, together, case):
    settings = {**process_worker.COMMON, **process_worker.CASES[case]}
    lab.train("process_world:load", out=tmp_path / "alone", **settings)
    compare(tmp_path / "alone", together / case)
    assert not list((together / case).rglob(".*"))


@pytest.mark.parametrize("case", process_worker.MISSING)
def test_a_share_without_labels_does_not_stop_the_others(together, case):
    losses = steps_of(together / case)["losses"]
    assert np.isfinite(losses[:, [0, 2]]).all()
    assert (losses[:, 1] != 0).all(), "no label is not a loss of zero"
    summary = json.loads((together / case / "summary.json").read_text())
    assert all(np.isfinite(score) for score in summary["scores"].values())


@pytest.mark.slow
def test_the_command_starts_its_processes_itself(tmp_path, together):
    arguments = ["train", "process_world:load", "--noise", "0.4", "--epochs", "2", "--seed", "3", "--device", "cpu"]
    arguments += ["--devices", "2", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-m", "excessmtl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("run folder") == 1
    compare(together / "excess", tmp_path / "run")


def test_what_cannot_be_shared_is_refused(tmp_path):
    with pytest.raises(ValueError, match="devices must be 1 for 'moml', found 2"):
        lab.train("process_world:load", "moml", out=tmp_path / "run", devices=2, device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_with_fewer_devices(tmp_path, together):
    shutil.copytree(together / "single", tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    settings = {**process_worker.COMMON, **process_worker.CASES["single"]}
    assert lab.train("process_world:load", out=tmp_path / "run", resume=True, **settings).summary["completed"]


def test_torchrun_and_devices_must_agree(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="devices is 2, but torchrun has started 4 processes"):
        lab.train("process_world:load", out=tmp_path / "run", devices=2, device="cpu")
