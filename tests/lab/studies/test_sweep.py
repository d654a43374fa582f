"""Sweeps: what they run, what they do not run again, and what they survive."""

import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import stub_workers
from filelock import FileLock

from excessmtl.lab.compare.collect import read_table
from excessmtl.lab.runs.folder import RunFolder
from excessmtl.lab.studies.study import expand, folder_of
from excessmtl.lab.studies.sweep import SweepWatcher, sweep
from excessmtl.lab.studies.workers import run
from excessmtl.lab.training.loop import Run

TINY = {"epochs": 1, "limit_batches": 1, "batch_size": 8, "device": "cpu"}


def study(seeds, methods=("uniform", "rlw"), noise=(0.0,), **settings):
    plain = {"benchmarks": ["simulated-arm"], "methods": list(methods), "noise": list(noise), "seeds": seeds}
    return expand({**plain, "settings": {**TINY, **settings}}, "s").runs


class Witness(SweepWatcher):
    """Remembers what it was told; kills all workers after so many runs: one of two may be idle just then."""

    def __init__(self, kill_after=None):
        self.kill_after, self.ended, self.hit = kill_after, [], []

    def on_finished(self, config, summary, seconds):
        self.ended.append(config)
        if len(self.ended) == self.kill_after:
            for worker in multiprocessing.active_children():
                os.kill(worker.pid, signal.SIGKILL)

    def on_death(self, config, reason):
        self.hit.append(config)


def started(out):
    return Counter((out / "started.txt").read_text().splitlines())


@pytest.mark.slow
def test_forty_runs_and_workers_killed_in_the_middle_end_complete_and_nothing_runs_again(tmp_path):
    runs = study(5, ["uniform", "rlw", "dwa", "groupdro"], [0.0, 0.4])
    witness = Witness(kill_after=15)
    outcome = sweep(runs, tmp_path, jobs=2, watcher=witness)
    assert 1 <= len(witness.hit) <= 2
    assert (len(outcome.finished), outcome.before, outcome.failed) == (40, (), ())
    assert set(read_table(tmp_path / "runs.csv")["folder"]) == {str(folder_of(config)) for config in runs}

    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    again = sweep(runs, tmp_path, jobs=2, watcher=witness)
    assert (again.finished, len(again.before), again.failed) == ((), 40, ())
    assert len(witness.ended) == 40
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")} == stamps


@pytest.mark.slow
def test_an_error_of_the_watcher_is_no_death_of_a_worker(tmp_path, monkeypatch):
    monkeypatch.setattr("excessmtl.lab.studies.sweep.run", stub_workers.finishes)
    witness = Witness()
    monkeypatch.setattr(witness, "on_finished", lambda *args: (_ for _ in ()).throw(BrokenPipeError("no reader")))
    with pytest.raises(BrokenPipeError):
        sweep(study(2), tmp_path, jobs=2, watcher=witness)
    assert not witness.hit


@pytest.mark.slow
def test_a_run_that_kills_its_worker_is_given_up_and_the_others_end(tmp_path, monkeypatch):
    monkeypatch.setattr("excessmtl.lab.studies.sweep.run", stub_workers.dies_at_seed_1)
    runs = study(4, ["uniform"])
    outcome = sweep(runs, tmp_path, jobs=2)
    assert {config.seed for config in outcome.finished} == {0, 2, 3}
    (failure,) = outcome.failed
    assert failure.config.seed == 1
    assert "its worker died 3 times, at last alone" in failure.reason
    assert started(tmp_path)[str(folder_of(runs[1]))] == 3


@pytest.mark.slow
def test_a_death_is_no_fault_of_the_run_and_low_seeds_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr("excessmtl.lab.studies.sweep.run", stub_workers.dies_once_at_seed_1)
    witness = Witness()
    outcome = sweep(study([2, 0, 1], ["uniform"]), tmp_path, jobs=1, watcher=witness)
    assert [config.seed for config in witness.ended] == [0, 2, 1], "it is tried again when the others have ended"
    assert [config.seed for config in witness.hit] == [1]  # the others did not notice
    assert (len(outcome.finished), outcome.failed) == (3, ())
    assert started(tmp_path).total() == 4


@pytest.mark.skipif(os.name != "posix", reason="workers are watched on POSIX systems only")
def test_busy_and_idle_workers_end_with_a_sweep_that_is_killed(tmp_path):
    script = f"""
import sys
from pathlib import Path

sys.path[:0] = {sys.path!r}
import stub_workers

from excessmtl.lab.studies import sweep as sweeps
from excessmtl.lab.studies.study import expand

sweeps.run = stub_workers.holds_a_lock_until_it_dies
runs = expand({{"benchmarks": ["simulated-arm"], "methods": ["uniform"], "seeds": 2}}, "s").runs
sweeps.sweep(runs, Path({str(tmp_path)!r}), jobs=2)
"""
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        try:
            while not (tmp_path / "started.txt").exists() or len((tmp_path / "started.txt").read_text().split()) < 2:
                assert process.poll() is None
                time.sleep(0.1)
        finally:
            process.kill()
    # A worker has its lock until it is gone.
    for seed in (0, 1):
        FileLock(tmp_path / f"worker-{seed}.lock").acquire(timeout=60).lock.release()


def test_a_run_waits_for_the_process_that_still_works_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *args: None)
    config, folder = study(1)[0], tmp_path / "noise-0" / "seed-0"
    before = Run(config, folder)
    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = pool.submit(run, config, folder)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
        finally:
            before.folder.close()
        assert waiting.result(timeout=60).summary["completed"]


def test_one_sweep_at_a_time_works_in_a_folder(tmp_path):
    (folder := RunFolder(tmp_path)).claim("it is free")
    with pytest.raises(ValueError, match="another sweep is at work in"):
        sweep(study(1), tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / ".lock"]
    folder.close()


def test_what_a_run_raises_is_sent_back_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *args: None)  # this is no worker: Ctrl-C must go on working here

    def broken(*args, **kwargs):
        raise MemoryError("no\nroom")

    monkeypatch.setattr("excessmtl.lab.training.loop.train", broken)
    result = run(study(1)[0], tmp_path / "run")
    assert (result.summary, result.reason) == (None, "MemoryError: no room")
    assert "Traceback" in result.details


def test_the_same_run_twice_is_refused(tmp_path):
    (config,) = study(1, ["uniform"])
    with pytest.raises(ValueError, match="2 runs of the sweep are the same"):
        sweep([config, config], tmp_path)


def test_a_backend_that_is_not_installed_says_how_to_get_it(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "dask"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ValueError, match=r'pip install "\.\[dask\]"'):
        sweep(study(1), tmp_path, backend="dask")


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_a_cluster_runs_a_sweep(tmp_path, backend, package):
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:  # a folder of tests of that name is no package
        pytest.skip(f"{package} is not installed: pip install '.[{backend}]'")
    # In a process of its own: clusters leave threads and warnings behind that are not ours.
    script = f"""
from pathlib import Path
from excessmtl.lab.studies.study import expand
from excessmtl.lab.studies.sweep import sweep

if __name__ == "__main__":
    plain = {{"benchmarks": ["simulated-arm"], "methods": ["uniform", "rlw"], "seeds": 2, "settings": {TINY!r}}}
    outcome = sweep(expand(plain, "s").runs, Path({str(tmp_path / "out")!r}), jobs=2, backend={backend!r})
    assert (len(outcome.finished), outcome.failed) == (4, ()), outcome
"""
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert len(read_table(Path(tmp_path, "out", "runs.csv"))) == 4
