"""The trivial predictor, and what docs/benchmarks.md says the networks do better."""

import csv
from pathlib import Path

import pytest
import torch

from excessmtl.lab.data import kinds, registry
from excessmtl.lab.data.find import load_benchmark
from excessmtl.lab.data.tasks import Task
from research.stand_ins import BENCHMARKS, SEEDS, constant_output, trivial_scores

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def rows():
    return list(csv.DictReader((DOCS / "data" / "stand_ins.csv").read_text().splitlines()))


def test_constant_outputs():
    classes = constant_output(Task("a", 3, kinds.classification), torch.tensor([2, 0, 2, 1]), "accuracy")
    assert classes.tolist() == [0, 0, 1]
    number = constant_output(Task("a", 1, kinds.regression), torch.tensor([[1.0], [2.0], [6.0]]), "nmse")
    assert number.tolist() == [3.0]
    labels = torch.tensor([[[-1, -1, -1], [1, 1, 0]]], dtype=torch.int8)
    output = constant_output(Task("a", 2, kinds.segmentation), labels, "pixel_accuracy")
    assert output.argmax(0).tolist() == [[1, 1, 1], [1, 1, 1]]
    normals = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]).T.reshape(1, 3, 2, 2)
    mean = constant_output(Task("a", 3, kinds.normals), normals, "angle_mean")
    assert mean[:, 0, 0].tolist() == pytest.approx([0, 1 / 3, 2 / 3])
    assert constant_output(Task("a", 3, kinds.normals), normals, "within_11.25")[:, 1, 1].tolist() == [0, 0, 1]


def test_no_constant_depth_has_a_smaller_relative_error():
    depths = torch.rand(4, 1, 5, 6) * 9 + 1
    depths[0, 0, 0] = 0
    valid = depths[depths != 0]
    best = constant_output(Task("a", 1, kinds.depth), depths, "rel_error")[0, 0, 0]
    errors = [float(((valid - c).abs() / valid).mean()) for c in (best, *valid)]
    assert errors[0] == pytest.approx(min(errors))


def test_a_trivial_predictor_is_scored_on_every_task():
    bench = registry()["digit-domains"].load(0, digits_per_domain=50)
    tasks = ("plain", "outline", "shaded", "turned")
    assert trivial_scores(bench) == pytest.approx({f"{task}/accuracy": 0.1 for task in tasks}, abs=0.05)
    arm = trivial_scores(registry()["simulated-arm"].load(0))
    assert all(0.5 < score < 2 for score in arm.values())


@pytest.mark.parametrize("name", ["multimnist", "simulated-arm"])
def test_the_trivial_scores_in_the_file_are_those_of_the_data(rows, name, monkeypatch):
    monkeypatch.setenv("EXCESSMTL_DATA", "no/such/folder")  # the bundled digits, also where MNIST is in the cache
    found = trivial_scores(load_benchmark(name, None, 0, {}))
    published = {
        f"{r['task']}/{r['metric']}": float(r["trivial"]) for r in rows if (r["benchmark"], r["seed"]) == (name, "0")
    }
    assert published == pytest.approx(found, abs=1e-4)


def test_every_task_of_every_stand_in_is_in_the_file(rows):
    found = {(row["benchmark"], row["task"], int(row["seed"])) for row in rows}
    assert {row["benchmark"] for row in rows} == set(BENCHMARKS)
    for name in ("digit-domains", "simulated-arm"):
        tasks = [task.name for task in registry()[name].load(0).tasks]
        assert {(name, task, seed) for task in tasks for seed in SEEDS} <= found


def test_trained_networks_beat_the_trivial_predictor_clearly(rows):
    for row in rows:
        trivial, trained = float(row["trivial"]), float(row["trained"])
        errors = (trivial, trained) if row["better"] == "lower" else (1 - trivial, 1 - trained)
        # A direction that points up is right on the whole floor; the page says so.
        clearly = 1 if row["metric"] == "within_11.25" else 0.7
        assert errors[1] < clearly * errors[0], row
