"""The registry behind `excessmtl reproduce`."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from commands import done, excessmtl, refused
from excessmtl.lab.compare.collect import write_table
from excessmtl.lab.paper import registry
from excessmtl.lab.paper.plans import PLANS
from excessmtl.lab.reports.sections import recorded
from excessmtl.lab.runs.folder import folder_of
from excessmtl.lab.studies.sweep import Failure, Outcome
from made_up_runs import as_frame, made_up_run, write_course
from worlds import RIGHT, sarcos


@pytest.fixture
def _toy(monkeypatch):
    registry.registry()
    monkeypatch.setattr(registry, "_FIGURES", {})

    @registry.figure("toy", "a line")
    def draw(scale):
        picture = registry.canvas(2, 2)
        picture.subplots().plot([0, 1], [0, 1])
        return registry.Drawing({"": [{"scale": scale, "x": 1 / 3}]}, {"": picture})


ALL = (
    "batch-size, clean-validation, conceptual, dynamics, excess-risk, loss-profile, multimnist, nyuv2, office-home, "
    "sarcos"
)


def test_the_figures_are_listed():
    rows = [line.split("│")[1:-1] for line in done("reproduce", "--list").splitlines() if line.startswith("│")]
    assert [row[0].strip() for row in rows if row[0].strip()] == [*ALL.split(", "), "all"]
    assert all(re.fullmatch(r"\d+ runs|computed|", cell.strip()) for row in rows for cell in row[2:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], f"unknown figure 'nothing'; the figures are {ALL} and all"),
        (["conceptual", "--scale", "huge"], "--scale must be quick or paper, found 'huge'"),
        ([], f"name a figure: {ALL} or all"),
        (["sarcos", "--jobs", "0"], "jobs must be at least 1, found 0"),
        (["sarcos", "--data", "sarcos"], "--data must look like name=path"),
        (["sarcos", "--data", "mnist=."], "name=path with a name of multimnist, office-home, sarcos, nyuv2"),
        (["sarcos", "--data", "sarcos=/no/such/file"], "/no/such/file does not exist"),
        (["sarcos", "--data", f"sarcos={__file__}"], "test_figures.py"),
        (["sarcos", "--runs", "no/such/folder"], "no/such/folder is not a folder"),
        (["conceptual", "--runs", "tests"], "--runs draws from training runs, and conceptual is not made of any"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, message, tmp_path):
    refused(excessmtl("reproduce", *arguments, "--out", tmp_path / "out"), message)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("_toy")
def test_a_figure_becomes_png_svg_and_csv(tmp_path):
    done("reproduce", "all", "--scale", "paper", "--out", tmp_path / "deep" / "folder")
    assert sorted(path.name for path in (tmp_path / "deep" / "folder").iterdir()) == ["toy.csv", "toy.png", "toy.svg"]
    assert (tmp_path / "deep/folder/toy.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "deep/folder/toy.csv")
    assert table.scale.item() == "paper"
    assert table.x.item() == pytest.approx(1 / 3, rel=1e-5)


def test_figures_from_runs_that_exist_train_nothing(tmp_path):
    write_table(as_frame(sarcos(RIGHT)), tmp_path / "study" / "runs.csv")
    printed = done("reproduce", "all", "--runs", tmp_path / "study", "--out", tmp_path / "out")
    assert (tmp_path / "out" / "sarcos.png").exists()
    assert not (tmp_path / "out" / "runs").exists()
    assert "dynamics: Figure 3" in printed
    assert "nothing to draw: these runs do not show it" in printed


def _without_training(monkeypatch, epochs):
    monkeypatch.setenv("EXCESSMTL_DATA", "no/such/folder")
    for name, plan in PLANS["quick"].items():
        tiny = replace(plan, settings={**plan.settings, "epochs": epochs, "limit_batches": 2})
        monkeypatch.setitem(PLANS["quick"], name, tiny)


def _pretend(runs, out, *, jobs=None, watcher=None):
    """A sweep that trains nothing."""
    for config in runs:
        folder = out / folder_of(config)
        if (folder / "summary.json").exists():
            continue
        scores = {"clean": 0.9, "noisy": 0.5, "weight": 0.5, "epochs": config.epochs}
        row = made_up_run(config.benchmark, config.name, config.noise, config.seed, **scores)
        tasks = list(row["scores"])
        course = dict.fromkeys(("weights", "losses", "risks"), lambda t, noisy: 1 + noisy - t)
        write_course(folder, tasks, row["noisy_tasks"], **course, epochs=config.epochs)
        (folder / "summary.json").write_text(json.dumps(row))
    return Outcome((), (), ())


def test_a_figure_shows_the_runs_it_asked_for_and_no_others_in_the_pool(tmp_path, monkeypatch):
    monkeypatch.setattr("excessmtl.lab.studies.sweep.sweep", _pretend)
    for epochs in (1, 2):
        _without_training(monkeypatch, epochs)
        done("reproduce", "excess-risk", "--out", tmp_path)
    assert len(list(tmp_path.rglob("summary.json"))) == 8
    assert recorded(tmp_path) == ["paper"], "its report shows what the paper adds"
    assert not (tmp_path / "excess-risk_2.png").exists()
    course = pd.read_csv(tmp_path / "excess-risk_course.csv")
    assert course.groupby(["method", "seed"]).epoch.max().eq(course.epoch.max()).all()


def test_failed_runs_are_told_and_nothing_is_drawn(tmp_path, monkeypatch):
    def failing(runs, out, *, jobs=None, watcher=None):
        return Outcome((), (), (Failure(runs[0], "no luck", ""),))

    monkeypatch.setattr("excessmtl.lab.studies.sweep.sweep", failing)
    refused(excessmtl("reproduce", "loss-profile", "--out", tmp_path), "1 of 40 runs failed, nothing was", "no luck")
    assert list(tmp_path.glob("*.png")) == []


@pytest.mark.slow
def test_a_figure_trains_its_runs_once(tmp_path, monkeypatch):
    _without_training(monkeypatch, 1)
    assert "4 runs to do; 1 at a time" in done("reproduce", "excess-risk", "--out", tmp_path, "--jobs", "1")
    assert (tmp_path / "excess-risk.png").exists()
    assert "nothing to do, all 4 runs are finished" in done("reproduce", "excess-risk", "--out", tmp_path)


@pytest.mark.slow
def test_figure_1_is_computed_with_its_published_numbers(tmp_path):
    done("reproduce", "conceptual", "--out", tmp_path)
    assert {path.name.removeprefix("conceptual.") for path in tmp_path.glob("conceptual.*")} == {"csv", "png", "svg"}
    docs = Path(__file__).parents[3] / "docs" / "data" / "theory"
    computed, published = (pd.read_csv(folder / "conceptual.csv", index_col="solution") for folder in (tmp_path, docs))
    pd.testing.assert_frame_equal(computed, published, rtol=1e-3, atol=1e-6)
    pd.testing.assert_frame_equal(computed[:3], published[:3], rtol=1e-5, atol=1e-12)  # no training in these


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_quick_multimnist_is_trained_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setenv("EXCESSMTL_DATA", str(tmp_path / "no-cache"))
    done("reproduce", "multimnist", "--scale", "quick", "--out", tmp_path)
    table = pd.read_csv(tmp_path / "multimnist.csv").set_index(["method", "noise"])
    assert len(table) == 9 * 3
    assert (table.seeds == 2).all()
    assert table.clean_score.min() > 0.2  # ten classes: everything has learned something
    assert table.clean_weight["ExcessMTL (ours, robust)", 0.8] > table.clean_weight["GroupDRO", 0.8]
