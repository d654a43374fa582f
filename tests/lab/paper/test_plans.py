"""Which runs the figures need: pure lists."""

from collections import Counter

import pytest
import torch

from excessmtl.lab.paper import registry
from excessmtl.lab.paper.methods import COMPARED, METHODS, PAPER, ROBUST, shown_name
from excessmtl.lab.paper.plans import PLANS, benchmark_for, grid
from excessmtl.lab.paper.registry import RunsFigure
from excessmtl.lab.paper.reproduction import needed_runs
from excessmtl.lab.studies.folders import folder_of
from excessmtl.lab.training.resolve import load_benchmark, resolve

RUNS_FIGURES = [entry for entry in registry.registry().values() if isinstance(entry, RunsFigure)]


@pytest.fixture(autouse=True)
def _no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("EXCESSMTL_DATA", str(tmp_path / "cache"))


def test_every_figure_of_the_paper_with_runs_is_there():
    names = {entry.name for entry in RUNS_FIGURES}
    assert names == {
        "excess-risk",
        "dynamics",
        "loss-profile",
        "clean-validation",
        "multimnist",
        "office-home",
        "sarcos",
        "nyuv2",
    }


@pytest.mark.parametrize("scale", registry.SCALES)
@pytest.mark.parametrize("entry", RUNS_FIGURES, ids=lambda entry: entry.name)
def test_no_figure_asks_for_a_run_twice(entry, scale):
    folders = [folder_of(run) for run in entry.runs(scale, {})]
    assert folders
    assert len(set(folders)) == len(folders)


def test_figures_share_their_runs():
    together = needed_runs(RUNS_FIGURES, "quick", {})
    apart = sum(len(entry.runs("quick", {})) for entry in RUNS_FIGURES)
    assert len(together) < apart
    by_benchmark = Counter(run.benchmark for run in together)
    # 8 methods x 3 levels x 2 seeds, the single-task networks at 0, 0.6 and 0.8, two estimators at 0.6.
    assert by_benchmark["multimnist"] == 48 + 6 + 4
    assert by_benchmark["simulated-arm"] == 48
    # One more method (MOML) there, one seed.
    assert by_benchmark["digit-domains"] == 27
    assert by_benchmark["synthetic-rooms"] == 14
    assert set(by_benchmark) == {"multimnist", "simulated-arm", "digit-domains", "synthetic-rooms"}


def test_the_paper_scale_has_its_noise_levels_and_three_seeds():
    runs = grid("multimnist", "paper", {}, COMPARED)
    assert len(runs) == 8 * 6 * 3
    assert {run.noise for run in runs} == {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}
    assert {run.epochs for run in runs} == {None}  # the benchmark's own
    assert {run.name for run in runs} == set(COMPARED)


def test_runs_carry_the_papers_names_and_options():
    by_name = {run.name: run for run in grid("sarcos", "quick", {}, COMPARED)}
    assert by_name[PAPER].options == {"estimator": "paper"}
    assert by_name[ROBUST].options == {}
    assert {run.method for run in by_name.values()} == {METHODS[name].name for name in COMPARED}


def test_the_papers_weights_move_also_in_short_runs_on_tasks_of_different_kinds():
    run = grid("nyuv2", "quick", {}, [PAPER])[0]
    benchmark = load_benchmark(run)
    resolved = resolve(run, benchmark, torch.device("cpu"))
    steps = run.epochs * (benchmark.train.length("depth") // benchmark.recipe.batch_size)
    assert resolved.options["warmup_steps"] <= steps / 3
    assert shown_name(run.method, resolved.options, "label", mixed=True) == PAPER


def test_sarcos_is_real_where_it_is_at_hand(tmp_path, monkeypatch):
    assert benchmark_for("sarcos", "quick", {}) == "simulated-arm"
    assert benchmark_for("sarcos", "quick", {"sarcos": "somewhere"}) == "sarcos"
    assert {run.data for run in grid("sarcos", "quick", {"sarcos": "somewhere"}, [ROBUST])} == {"somewhere"}
    (tmp_path / "cache" / "sarcos").mkdir(parents=True)
    assert benchmark_for("sarcos", "quick", {}) == "sarcos"


def test_large_networks_are_for_the_paper_scale(tmp_path):
    (tmp_path / "cache" / "office-home").mkdir(parents=True)
    assert benchmark_for("office-home", "quick", {}) == "digit-domains"
    assert benchmark_for("office-home", "paper", {}) == "office-home"
    with pytest.raises(ValueError, match="--data office-home: its network is too large for --scale quick"):
        benchmark_for("office-home", "quick", {"office-home": "somewhere"})


def test_quick_runs_are_bounded_whatever_lies_in_the_cache():
    for name in ("multimnist", "sarcos"):
        assert PLANS["quick"][name].settings["limit_batches"] < 50


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("sarcos", "--data must look like name=path"),
        ("mnist=.", "--data must look like name=path with a name of multimnist, office-home, sarcos, nyuv2"),
        ("sarcos=/no/such/file", "/no/such/file does not exist"),
    ],
)
def test_mistakes_in_data_paths_are_named(pair, message):
    with pytest.raises(ValueError, match=message):
        registry.data_paths([pair])
