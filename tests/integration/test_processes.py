"""Processes that share a batch train as one process with the whole batch does, or say why they do not."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from fully_sharded_worker import SCENARIOS as SHARDED
from two_processes_worker import SCENARIOS as REPLICATED

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
"""There may be fewer devices than processes."""


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    """What both processes have noted, by worker and scenario; those of a worker run in one pair of processes."""

    @cache
    def run(worker):
        folder = tmp_path_factory.mktemp("processes")
        command = [sys.executable, str(HERE / f"{worker}_worker.py")]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": ENVIRONMENT}
        started = [subprocess.Popen([*command, str(rank), str(folder)], **options) for rank in range(2)]
        printed = "".join(process.communicate(timeout=240)[0] for process in started)[-3000:]
        files = [folder / f"{rank}.json" for rank in range(2)]
        found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
        return lambda name: [one.get(name, f"not reached: {printed}") for one in found]

    return run


@pytest.mark.parametrize(
    ("worker", "scenario"),
    [
        *(("two_processes", name) for name in REPLICATED),
        *(pytest.param("fully_sharded", name, marks=pytest.mark.slow) for name in SHARDED),
    ],
)
def test_two_processes(notes, worker, scenario):
    noted = notes(worker)(scenario)
    assert set(noted) == {"well"}, "\n".join(noted)


@pytest.mark.slow
def test_every_framework():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command.append(str(HERE / "frameworks_worker.py"))
    result = subprocess.run(command, capture_output=True, text=True, timeout=280, env=ENVIRONMENT)
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    assert " equal" in result.stdout
