"""Which runs the figures need: pure lists."""

from collections import Counter

import pytest
import torch

from excessmtl.lab.data import registry as benchmarks
from excessmtl.lab.paper import registry
from excessmtl.lab.paper.plans import PLANS, benchmark_for, grid, needed_runs
from excessmtl.lab.paper.subjects import COMPARED, DATA, PAPER, ROBUST, shown_name
from excessmtl.lab.runs.folder import folder_of
from excessmtl.lab.training.resolve import load_benchmark, resolve

RUNS_FIGURES = [entry for entry in registry.registry().values() if entry.about]


@pytest.fixture(autouse=True)
def _no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("EXCESSMTL_DATA", str(tmp_path / "cache"))


@pytest.mark.parametrize("scale", registry.SCALES)
def test_no_figure_asks_for_a_run_twice(scale):
    for entry in RUNS_FIGURES:
        folders = [folder_of(run) for run in entry.runs(scale, {})]
        assert len(set(folders)) == len(folders) > 0, entry.name


def test_figures_share_their_runs():
    together = needed_runs(RUNS_FIGURES, "quick", {})
    assert len(together) < sum(len(entry.runs("quick", {})) for entry in RUNS_FIGURES)
    assert Counter(run.benchmark for run in together) == {
        # 9 methods x 3 levels x 2 seeds, the single-task networks at 0 and 0.8, two estimators at 0.6.
        "multimnist": 54 + 4 + 4,
        "simulated-arm": 54,
        "digit-domains": 30,  # one more method (MOML) there, one seed
        "synthetic-rooms": 16,
    }


def test_the_paper_scale_has_its_noise_levels_and_three_seeds():
    runs = grid("multimnist", "paper", {}, COMPARED)
    assert len(runs) == 9 * 6 * 3
    assert {run.noise for run in runs} == {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}
    assert {run.epochs for run in runs} == {None}  # the benchmark's own
    by_name = {run.name: run for run in runs}
    assert set(by_name) == set(COMPARED)
    assert (by_name[PAPER].options, by_name[ROBUST].options) == ({"estimator": "paper"}, {})


def test_the_papers_weights_move_also_in_short_runs_on_tasks_of_different_kinds():
    run = grid("nyuv2", "quick", {}, [PAPER])[0]
    benchmark = load_benchmark(run)
    resolved = resolve(run, benchmark, torch.device("cpu"))
    steps = run.epochs * (benchmark.train.length("depth") // benchmark.recipe.batch_size)
    assert resolved.options["warmup_steps"] <= steps / 3
    assert shown_name(run.method, resolved.options, "label", mixed=True) == PAPER


def test_stand_ins_are_those_of_the_benchmarks():
    assert {name: data.stand_in for name, data in DATA.items()} == {name: benchmarks()[name].stand_in for name in DATA}


def test_sarcos_is_real_where_it_is_at_hand(tmp_path, monkeypatch):
    assert benchmark_for("sarcos", "quick", {}) == "simulated-arm"
    assert benchmark_for("sarcos", "quick", {"sarcos": "somewhere"}) == "sarcos"
    assert {run.data for run in grid("sarcos", "quick", {"sarcos": "somewhere"}, [ROBUST])} == {"somewhere"}
    (tmp_path / "cache" / "sarcos").mkdir(parents=True)
    assert benchmark_for("sarcos", "quick", {}) == "sarcos"
    assert benchmark_for("sarcos", "quick", None) == "simulated-arm", "the list of figures does not look"


def test_large_networks_are_for_the_paper_scale(tmp_path):
    (tmp_path / "cache" / "office-home").mkdir(parents=True)
    assert benchmark_for("office-home", "quick", {}) == "digit-domains"
    assert benchmark_for("office-home", "paper", {}) == "office-home"
    with pytest.raises(ValueError, match="--data office-home: its network is too large for --scale quick"):
        benchmark_for("office-home", "quick", {"office-home": "somewhere"})


def test_quick_runs_are_bounded_whatever_lies_in_the_cache():
    for name in ("multimnist", "sarcos"):
        assert PLANS["quick"][name].settings["limit_batches"] < 50
