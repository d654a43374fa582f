"""Processes that share a batch train as one process with the whole batch does, or say why they do not."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from two_processes_worker import SCENARIOS

# There may be fewer devices than processes. The others are what torchrun tells, and frameworks ask for.
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
ENVIRONMENT |= {"MASTER_PORT": "0", "TORCHELASTIC_RUN_ID": "tests"}


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    """What each of two processes has noted, by scenario; those of a worker run in one pair of processes."""

    @cache
    def run(worker):
        folder = tmp_path_factory.mktemp("processes")
        started = []
        for rank in ("0", "1"):
            command = [sys.executable, str(Path(__file__).parent / f"{worker}_worker.py"), rank, str(folder)]
            environment = {**os.environ, **ENVIRONMENT, "RANK": rank, "LOCAL_RANK": rank}
            options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
            started.append(subprocess.Popen(command, **options))
        printed = "".join(process.communicate(timeout=280)[0] for process in started)[-3000:]
        files = [folder / f"{rank}.json" for rank in range(2)]
        return [json.loads(file.read_text()) if file.exists() else {"printed": printed} for file in files]

    return run


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_processes(notes, scenario):
    noted = [one.get(scenario, f"not reached: {one}") for one in notes("two_processes")]
    assert set(noted) == {"well"}, "\n".join(noted)


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["fully_sharded", "frameworks"])
def test_sharded_models_and_every_framework(notes, worker):
    for noted in notes(worker):
        assert {name: note for name, note in noted.items() if note != "well"} == {}
