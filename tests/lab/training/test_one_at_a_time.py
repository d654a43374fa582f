"""One process at a time trains in a folder; a second command without --out gets a folder of its own."""

import pytest

from commands import done
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import Run, train

CONFIG = RunConfig("simulated-arm", "uniform", epochs=2, limit_batches=2, device="cpu")
SMALL = ["--method", "uniform", "--epochs", "1", "--limit-batches", "1", "--device", "cpu"]


def test_the_folder_is_taken_during_a_run_and_free_after_it_and_after_a_failure(tmp_path, monkeypatch):
    run = Run(CONFIG, tmp_path / "run")
    with pytest.raises(ValueError, match="another process is training in"):
        train(CONFIG, tmp_path / "run", resume=True)
    run.execute()
    train(CONFIG, tmp_path / "run", resume=True)
    monkeypatch.setattr(Run, "_epoch", lambda self, epoch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(CONFIG, tmp_path / "failed")
    monkeypatch.undo()
    assert train(CONFIG, tmp_path / "failed", resume=True)["completed"]
    assert not list(tmp_path.rglob(".*"))


def test_without_out_every_run_gets_a_folder_named_after_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "runs/simulated-arm-uniform-noise-0-seed-0"
    # The last one goes on with the second, which is finished.
    for more, folder in (([], name), ([], f"{name}-2"), (["--resume"], f"{name}-2"), (["--option", "scale=mean"], "")):
        printed = done("train", "simulated-arm", *SMALL, *more)
        assert f"run folder: {folder or name.replace('uniform', 'uniform-scale=mean')}\n" in printed


@pytest.mark.parametrize("name", ["x/[/b]", "[red]", ":smile:", "[link=x]y"])
def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert f"run folder: {name}" in done("train", "simulated-arm", *SMALL, "--out", name)
    assert (tmp_path / name / "summary.json").is_file()
