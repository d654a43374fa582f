"""What a person reads while a sweep runs, where there is no terminal."""

import io

from rich.console import Console

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.studies.sweep import Failure, SweepProgress


def test_a_line_for_everything_that_happens():
    runs = [RunConfig("school", "uniform", seed=seed, label="[red] one") for seed in range(3)]
    file = io.StringIO()
    with SweepProgress(Console(file=file, width=60)) as progress:
        progress.on_start(runs, 4, 2)
        progress.on_finished(runs[0], {"scores": {"a": 0.5, "b": None, "c": 1, "d": 1, "e": 1}}, 20)
        progress.on_death(runs[1], "killed")
        progress.on_failed(Failure(runs[1], "no [room]", ""))
        progress.on_finished(runs[2], {"scores": {"a": 0.5}}, 20)
        progress.on_start(runs[:1], 0, 1)  # the second part of a study that tunes counts from one
        progress.on_finished(runs[0], {"scores": {"a": 0.5}}, 20)
    assert file.getvalue().splitlines() == [
        "3 runs to do, 4 are finished already; 2 at a time",
        "1/3  school, [red] one, noise 0, seed 0: a 0.5000, b diverged, c 1.0000, d 1.0000, ...",
        "school, [red] one, noise 0, seed 1: its worker died (killed); it will go on from its checkpoint",
        "2/3  school, [red] one, noise 0, seed 1: FAILED: no [room]",
        "3/3  school, [red] one, noise 0, seed 2: a 0.5000",
        "1 runs to do; 1 at a time",
        "1/1  school, [red] one, noise 0, seed 0: a 0.5000",
    ]
