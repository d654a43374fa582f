"""A run folder may come from anybody: import paths that stand in it are followed only where the caller says so."""

import sys

import pytest
import torch
import yaml

from commands import done, excessmtl, refused
from excessmtl import lab
from tests.lab.test_own_data import PACKAGE

MARK = "\nfrom pathlib import Path\n\nPath('imported').touch()\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder, with a module that leaves the file `imported` behind when it is imported."""
    (tmp_path / "stranger.py").write_text(PACKAGE + MARK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("stranger", None)


@pytest.fixture
def run(place):
    """A run on a function of that module, as if it had been made elsewhere: nothing is imported yet."""
    lab.train("stranger:load", method="stranger:Fixed", out=place / "run", epochs=1, device="cpu")
    sys.modules.pop("stranger")
    (place / "imported").unlink()
    return place / "run"


def with_settings(run, **settings):
    """The run, whose config.yaml says something else."""
    path = run / "config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **settings}))
    return run


def test_nothing_in_a_folder_is_imported_unless_it_is_trusted(run, place):
    refused(excessmtl("diagnose", run), "benchmark 'stranger:load'", "import stranger", "--trust")
    for use in (lab.load, lab.diagnose):
        with pytest.raises(ValueError, match=r"benchmark 'stranger:load'.* import stranger .*trust=True"):
            use(run)
    assert not (place / "imported").exists()
    done("diagnose", run, "--trust")
    assert (place / "imported").exists()
    assert lab.load(run, trust=True)(torch.zeros(3, 10))["level"].shape == (3, 1)
    assert [task.task for task in lab.diagnose(run, trust=True).tasks] == ["level", "positive"]
    import stranger

    assert lab.load(run, stranger.load(0))(torch.zeros(3, 10))["positive"].shape == (3, 1)


def test_a_function_of_the_system_is_not_called(run, place):
    with_settings(run, benchmark="os:system", benchmark_options={"command": "touch called"})
    refused(excessmtl("diagnose", run, "--save"), "os:system")
    with pytest.raises(ValueError, match="os:system"):
        lab.load(run)
    assert not (place / "called").exists()


def test_reading_a_folder_of_runs_imports_nothing(run, place):
    assert list(lab.collect(place).label) == ["Fixed"]
    lab.report(place, place / "report.html")
    done("report", place, "-o", place / "other.html")
    refused(excessmtl("reproduce", "multimnist", "--runs", place), "holds no run")
    assert not (place / "imported").exists()


def test_what_the_user_types_needs_no_trust(run):
    settings = {"method": "stranger:Fixed", "out": run, "epochs": 3, "device": "cpu", "resume": True}
    summary = lab.train("stranger:load", **settings).summary
    assert summary["epochs"] == 3
    assert summary["weights"] == pytest.approx({"level": 0.75, "positive": 0.25})


def test_going_on_with_a_run_does_not_follow_the_path_in_its_folder(run, place):
    with_settings(run, benchmark="os:system")
    words = ["stranger:load", "--method", "stranger:Fixed", "--device", "cpu", "--out", run, "--resume"]
    refused(excessmtl("train", *words), "benchmark is 'stranger:load'", "started with 'os:system'")
