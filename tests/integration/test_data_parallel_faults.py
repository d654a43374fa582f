"""Two processes in the less usual ways of DistributedDataParallel."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cases import each

SCENARIOS = [
    f"{scenario}-{form}"
    for scenario in ("static_graph", "none_on_one_rank", "uneven_inputs", "not_averaged")
    for form in ("backward", "scalar")
]


def run(names, folder):
    """Both processes through the scenarios, as far as they get; per scenario what they noted, or what they printed."""
    folder.mkdir()
    worker = Path(__file__).with_name("data_parallel_faults_worker.py")
    started = [
        subprocess.Popen(
            [sys.executable, str(worker), str(rank), str(folder), *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    printed = "".join(process.communicate(timeout=120)[0] for process in started)
    notes = {name: [folder / f"{name}-{rank}.json" for rank in range(2)] for name in names}
    tail = printed[-2000:]
    found = {
        name: [json.loads(note.read_text()) if note.exists() else tail for note in both]
        for name, both in notes.items()
        if any(note.exists() for note in both)
    }
    return found or {names[0]: [tail]}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All scenarios in one pair of processes; where one ends them, the rest in a new pair."""
    found, left = {}, list(SCENARIOS)
    while left:
        found |= run(left, tmp_path_factory.mktemp("processes") / "notes")
        left = [name for name in left if name not in found]
    return found


@each("scenario", SCENARIOS)
def test_two_processes(results, scenario):
    assert set(results[scenario]) == {"well"}, "\n".join(results[scenario])
