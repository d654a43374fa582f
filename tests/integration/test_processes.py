"""Processes that share a batch train as one process with the whole batch does, or say why they do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from two_processes_worker import SCENARIOS

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    """What both processes have noted, scenario by scenario; all run in one pair of processes."""
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, str(HERE / "two_processes_worker.py")]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [subprocess.Popen([*command, str(rank), str(folder)], **options) for rank in range(2)]
    printed = "".join(process.communicate(timeout=240)[0] for process in started)[-3000:]
    files = [folder / f"{rank}.json" for rank in range(2)]
    found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    return lambda name: [one.get(name, f"not reached: {printed}") for one in found]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_processes(notes, scenario):
    assert set(notes(scenario)) == {"well"}, "\n".join(notes(scenario))


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["fully_sharded_worker.py", "frameworks_worker.py"])
def test_sharded_models_and_every_framework(worker):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # there may be fewer devices than processes
    command.append(str(HERE / worker))
    result = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    assert " equal" in result.stdout
