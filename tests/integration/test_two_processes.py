"""Two processes that share a batch train as one process with the whole batch does, or say why they do not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from two_processes_worker import SCENARIOS

WORKER = Path(__file__).with_name("two_processes_worker.py")


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    """What both processes have noted, scenario by scenario; all run in one pair of processes."""
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, str(WORKER)]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(2)
    ]
    printed = "".join(process.communicate(timeout=240)[0] for process in started)[-3000:]
    files = [folder / f"{rank}.json" for rank in range(2)]
    found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    return lambda name: [one.get(name, f"not reached: {printed}") for one in found]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_processes(notes, scenario):
    assert set(notes(scenario)) == {"well"}, "\n".join(notes(scenario))
