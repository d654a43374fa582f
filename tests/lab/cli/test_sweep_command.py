"""`excessmtl sweep` as a user meets it."""

import pandas as pd
import pytest

from commands import done, excessmtl, refused
from excessmtl.lab.compare.collect import read_table
from excessmtl.lab.studies.preflight import check_runs
from excessmtl.lab.studies.study import folder_of, read_study

STUDY = """
benchmarks: [simulated-arm]
methods: [excess, uniform]
noise: [0, 0.8]
settings: {epochs: 1, limit_batches: 1, batch_size: 8, device: cpu}
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(STUDY)
    return path


def test_a_study_of_the_package_is_found_by_its_name_and_a_dry_run_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = done("sweep", "demo", "--dry-run")
    assert "12 of 12 runs would run, in runs/demo" in shown
    assert "multimnist, GradNorm, noise 0.6, seed 2" in shown
    assert list(tmp_path.iterdir()) == []
    for name, sentence in (("nothing", "'demo'"), ("nothing.yaml", "error: cannot read or write nothing.yaml")):
        refused(excessmtl("sweep", name), sentence)


def test_runs_a_study_prints_its_tables_and_runs_nothing_again(tiny, tmp_path):
    printed = done("sweep", tiny, "--out", tmp_path / "out", "--jobs", 2)
    assert "4 runs to do; 2 at a time" in printed
    assert "4/4  simulated-arm, " in printed
    assert "Of 5 comparisons excess is better in 0" in printed
    assert len(read_table(tmp_path / "out" / "runs.csv")) == 4
    # Against uniform: two levels, two measures; against itself: the clean score at 0.8.
    assert sorted(pd.read_csv(tmp_path / "out" / "regret.csv")["rival"]) == ["itself at noise 0", *["uniform"] * 4]
    assert "| uniform | 0.8 |" in (tmp_path / "out" / "scores.md").read_text()

    again = done("sweep", tiny, "--out", tmp_path / "out")
    assert "nothing to do, all 4 runs are finished" in again
    assert "Of 5 comparisons excess is better in 0" in again


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STUDY.replace("simulated-arm", "school"), "The data of school is not available"),
        (STUDY.replace("excess, uniform", "{method: excess, options: {size: 1}}"), "size is not an option of"),
        (STUDY.replace("simulated-arm", "{benchmark: simulated-arm, noisy_tasks: [elbow]}"), "unknown task 'elbow'"),
        (STUDY.replace("simulated-arm", "{benchmark: sarcos, data: none.mat}"), "none.mat does not exist"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(tmp_path, monkeypatch, text, message):
    monkeypatch.setenv("EXCESSMTL_DATA", str(tmp_path / "cache"))
    if "school" not in text:  # one is looked at in a worker, as all are; the others here, which takes less time
        monkeypatch.setattr("excessmtl.lab.studies.workers.check_in_a_worker", check_runs)
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    refused(excessmtl("sweep", path, "--out", tmp_path / "out"), message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "threads"], "backend must be one of loky, ray, dask"),
        (["--jobs", 0], "jobs must be at least 1, found 0"),
        (["--device", "tpu"], "device must be one of"),
    ],
)
def test_wrong_arguments_are_refused(tiny, tmp_path, arguments, message):
    refused(excessmtl("sweep", tiny, "--out", tmp_path / "out", *arguments), message)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_others_is_exit_code_1_and_is_tried_again(tiny, tmp_path):
    out = tmp_path / "out"
    # One run cannot be started: something that is no run lies in its place.
    first = out / folder_of(read_study(tiny).runs[0])
    first.mkdir(parents=True)
    (first / "note.txt").touch()
    result = excessmtl("sweep", tiny, "--out", out, "--jobs", 2)
    assert result.exit_code == 1, (result.stderr, result.exception)
    assert "1 runs failed" in result.stdout
    assert "exists and is not a run" in result.stdout
    assert "Traceback" in (out / "failed.txt").read_text()
    assert len(read_table(out / "runs.csv")) == 3
    (first / "note.txt").unlink()
    assert "1 runs to do, 3 are finished already" in done("sweep", tiny, "--out", out, "--jobs", 1)
    assert len(read_table(out / "runs.csv")) == 4
    assert not (out / "failed.txt").exists()
