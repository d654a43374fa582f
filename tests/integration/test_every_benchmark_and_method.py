"""`excessmtl train B --method M` for every pair: the quick ones meet every benchmark once."""

import csv
import json
import math

import numpy as np
import pytest
import yaml

import excessmtl
from choices import METHODS as STANDING
from commands import excessmtl as command
from commands import refused
from excessmtl.lab.data import registry
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import train
from report_data import steps_of
from tiny_data import WRITERS, write_nyuv2

BENCHMARKS = sorted(registry())
ASKING = ["single", "excess", "moml", "bayes_agg", "famo", "dtp"]
"""They ask the training loop for something of their own; all other methods are the same to it."""
OTHERS = [name for name in excessmtl.list_methods() if name not in ASKING]
METHODS = [["excess", "estimator=paper"], *([name] for name in ASKING + OTHERS)]
IMAGES = ("nyuv2", "office-home", "synthetic-rooms")
LIGHT = [benchmark for benchmark in BENCHMARKS if benchmark not in IMAGES]
FIRST = [*BENCHMARKS, *(LIGHT * len(METHODS))][: len(METHODS)]
"""The benchmark that each method meets first: every benchmark once, and that is what the quick tests take."""
SMALLER = {"nyuv2": "levels=2", "office-home": "size=32"}
WITHOUT_LINEAR_HEADS = {"nyuv2", "synthetic-rooms"}
WITH_OWN_INPUTS = {"digit-domains", "office-home", "school", "vader"}
PAIRS = [
    pytest.param(
        benchmark,
        method,
        id=f"{benchmark}-{'-'.join(method)}",
        marks=() if benchmark == first and place < len(BENCHMARKS) else pytest.mark.slow,
    )
    for place, (method, first) in enumerate(zip(METHODS, FIRST, strict=True))
    for benchmark in BENCHMARKS
    # The methods that others stand for meet no other benchmark.
    if benchmark == first or method[0] in {*ASKING, *(one.name for one in STANDING)}
]


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Benchmark -> its files."""
    folder = tmp_path_factory.mktemp("data")
    return {name: write(folder) for name, write in WRITERS.items()}


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def numbers(value):
    """Every number in a summary."""
    if isinstance(value, dict):
        return [number for own in value.values() for number in numbers(own)]
    return [value] if isinstance(value, float) else []


@pytest.mark.parametrize(("benchmark", "method"), PAIRS)
def test_trains(tmp_path, monkeypatch, data, cache, benchmark, method):
    monkeypatch.setenv("EXCESSMTL_DATA", str(cache))
    name, *options = method
    arguments = ["train", benchmark, "--method", name, "--noise", "0.8", "--epochs", "1", "--limit-batches", "2"]
    arguments += ["--device", "cpu", "--out", str(tmp_path / "run")]
    arguments += [part for option in options for part in ("--option", option)]
    arguments += ["--benchmark-option", SMALLER[benchmark]] if benchmark in SMALLER else []
    arguments += ["--data", str(data[benchmark])] if benchmark in data else []
    result = command(*arguments)
    if name == "bayes_agg" and benchmark in WITHOUT_LINEAR_HEADS | WITH_OWN_INPUTS:
        reason = "are not linear" if benchmark in WITHOUT_LINEAR_HEADS else "have inputs of their own"
        refused(result, f"{reason}: take another method")
        assert not (tmp_path / "run").exists()
        return
    assert result.exit_code == 0, result.stderr or result.exception
    assert result.stderr == ""

    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert all(math.isfinite(number) for number in numbers(summary)), summary
    assert summary["completed"]
    assert (summary["benchmark"], summary["method"], summary["epochs"]) == (benchmark, name, 1)
    tasks = list(summary["scores"])
    assert set(summary["noisy_tasks"]) < set(tasks)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert None not in [config[key] for key in ("epochs", "batch_size", "learning_rate", "noise_seed", "noisy_tasks")]
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["0"]
    steps = steps_of(tmp_path / "run")
    assert steps["tasks"].tolist() == tasks
    assert np.isfinite(steps["losses"]).all()
    # The smallest of the files hold a single batch.
    assert steps["losses"].shape == steps["weights"].shape
    assert steps["losses"].shape in [(1, len(tasks)), (2, len(tasks))]
    assert np.isfinite(steps["excess_risks"]).all() == (name == "excess")
    if name == "single":
        assert summary["weights"] is None
    else:
        assert sum(summary["weights"].values()) == pytest.approx(1)
    assert {path.name for path in (tmp_path / "run" / "checkpoint").iterdir()} == {"epoch-00000.pt", "latest.json"}


def test_a_benchmark_that_holds_nothing_out_for_validation(tmp_path):
    data = write_nyuv2(tmp_path, train=4, test=2)
    options = {"validation": 0, "levels": 2}
    config = RunConfig("nyuv2", "excess", epochs=1, data=str(data), benchmark_options=options, device="cpu")
    summary = train(config, tmp_path / "run")
    assert set(summary["scores"]) == {"segmentation", "depth", "normals"}
    assert summary["overall_score"] is None
    (row,) = csv.DictReader((tmp_path / "run" / "metrics.csv").read_text().splitlines())
    assert not [name for name in row if name.startswith("validation/")]
    assert float(row["test/depth/rel_error"]) > 0
