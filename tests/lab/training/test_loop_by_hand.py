"""What a run writes is what a plain loop computes, number by number; and every field of a configuration matters."""

import csv
import json
import math
from dataclasses import fields

import numpy as np
import plain_loop
import pytest
import small_world
import torch
import yaml

from excessmtl.lab.data import base
from excessmtl.lab.data.noise import Noise, apply
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import Run
from report_data import steps_of

BASE = {"seed": 3, "noise": 0.5, "device": "cpu"}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(base._REGISTRY, "small-world", base.Entry("small-world", small_world.load, "made by a test"))


def run(folder, method="excess", **fields):
    """steps.npz [steps, 3, m], the rows of metrics.csv and summary.json of a run."""
    Run(RunConfig("small-world", method, **{**BASE, **fields}), folder).execute()
    stored = steps_of(folder)
    assert stored["tasks"].tolist() == ["a", "b", "c"]
    steps = np.stack([stored["weights"], stored["losses"], stored["excess_risks"]], axis=1)
    with (folder / "metrics.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    return steps, rows, json.loads((folder / "summary.json").read_text())


def by_hand(method="excess", world=None, **arguments):
    """The same by the plain loop."""
    arguments = {"seed": 3, "noise": 0.5, **arguments}
    made = small_world.load(None, arguments["seed"], **(world or {}))
    steps, rows = plain_loop.train(made, method, **arguments)
    return steps, rows, plain_loop.summary(made, rows, steps, arguments.get("noisy", ("b",)))


def close(found, expected):
    """Equality of nested values, of floats to seven digits."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            close(found[name], expected[name])
    else:
        assert found == (pytest.approx(expected, rel=2e-6, abs=1e-7) if isinstance(expected, float) else expected)


def same(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    assert len(found[1]) == len(expected[1])
    for one, other in zip(found[1], expected[1], strict=True):
        close(one, {name: float(value) for name, value in other.items()})
    for name, value in expected[2].items():
        close(found[2][name], value)


RATES = [0.01, 0.02, 0.02, 0.01]
"""Two steps of warm-up, then half a wave over two steps."""


@pytest.mark.parametrize(
    ("method", "config", "arguments", "world"),
    [
        ("excess", {}, {}, {}),
        ("excess", {"redraw_each_epoch": True, "epochs": 3}, {"redraw": True, "epochs": 3}, {"augmented": True}),
        ("moml", {"epochs": 3}, {"epochs": 3}, {"kinds": "regression"}),
        ("uniform", {"noise": 0.0}, {"noise": 0.0}, {"kinds": "mixed"}),
        ("excess", {}, {}, {"separate": True}),
        ("single", {}, {}, {"augmented": True}),
        ("single", {}, {}, {"separate": True}),
        ("uniform", {"schedule": "cosine", "warmup_steps": 2, "epochs": 1}, {"rates": RATES, "epochs": 1}, {}),
        ("dwa", {"epochs": 7}, {"epochs": 7}, {}),
    ],
)
def test_a_run_is_what_a_plain_loop_computes(tmp_path, method, config, arguments, world):
    same(run(tmp_path / "run", method, benchmark_options=world, **config), by_hand(method, world, **arguments))


SAME_AS_PLAIN = {
    "method": ({"method": "uniform"}, {"method": "uniform"}),
    "seed": ({"seed": 4}, {"seed": 4}),
    "noise": ({"noise": 0.2}, {"noise": 0.2}),
    "noisy_tasks": ({"noisy_tasks": ("a", "c")}, {"noisy": ("a", "c")}),
    "noise_seed": ({"noise_seed": 11}, {"noise_seed": 11}),
    "exclude_true": ({"exclude_true": True}, {"exclude_true": True}),
    "noise_kind": ({"noise_kind": "bias"}, {"noise_kind": "bias"}),
    "redraw_each_epoch": ({"redraw_each_epoch": True}, {"redraw": True}),
    "epochs": ({"epochs": 1}, {"epochs": 1}),
    "batch_size": ({"batch_size": 10}, {"size": 10}),
    "optimiser": ({"optimiser": "adamw"}, {"optimiser": "adamw"}),
    "optimiser_options": (
        {"optimiser": "sgd", "optimiser_options": {"momentum": 0.9}},
        {"optimiser": "sgd", "optimiser_options": {"momentum": 0.9}},
    ),
    "schedule": ({"schedule": "cosine"}, {"rates": [0.01 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]}),
    "warmup_steps": ({"warmup_steps": 5}, {"rates": [0.004, 0.008, 0.012, 0.016, 0.02, 0.02, 0.02, 0.02]}),
    "learning_rate": ({"learning_rate": 0.1}, {"rate": 0.1}),
    "weight_decay": ({"weight_decay": 0.5}, {"decay": 0.5}),
    "limit_batches": ({"limit_batches": 2, "batch_size": 6}, {"limit": 2, "size": 6}),
    "options": ({"options": {"decay": 0.5}}, {"options": {"decay": 0.5}}),
    "benchmark_options": ({"benchmark_options": {"augmented": True}}, {"world": {"augmented": True}}),
}
"""Field -> (fields of the run, arguments of the plain loop)."""
ELSEWHERE = {"benchmark", "label", "data", "device", "devices", "precision", "noisy_validation", "loss"}
"""Fields with a test of their own below; elsewhere: `devices` in test_several_processes.py, `loss` in
test_task_losses.py."""


def test_every_field_of_a_configuration_has_a_test():
    assert set(SAME_AS_PLAIN) | ELSEWHERE == {field.name for field in fields(RunConfig)}


@pytest.fixture(scope="module")
def unchanged():
    return by_hand()


@pytest.mark.parametrize("field", SAME_AS_PLAIN)
def test_a_field_does_what_the_plain_loop_does_with_it(tmp_path, unchanged, field):
    changed, arguments = SAME_AS_PLAIN[field]
    found = run(tmp_path / "run", **changed)
    same(found, by_hand(**arguments))
    assert found[0].shape != unchanged[0].shape or not np.array_equal(found[0], unchanged[0]), "it changes nothing"


def test_noisy_validation_labels_choose_an_epoch(tmp_path):
    fields = {"epochs": 5, "learning_rate": 0.5, "noise": 1.0}
    found = run(tmp_path / "run", noisy_validation=True, **fields)
    same(found, by_hand(epochs=5, rate=0.5, noise=1.0, noisy_validation=True))
    clean = run(tmp_path / "clean", **fields)
    assert found[1][0]["validation/b/loss"] != clean[1][0]["validation/b/loss"]
    assert found[1][0]["validation/a/loss"] == clean[1][0]["validation/a/loss"]
    world = small_world.load(None, 3)
    train = apply(world.train, world.tasks, Noise(1.0, ("b",), 3))
    errors = [np.mean([1 - row[f"validation/{task}/accuracy"] for task in train.targets]) for row in found[1]]
    summary, best = found[2], int(np.argmin(errors))
    assert best < 4, "a case in which the last epoch is not the best one"
    assert summary["chosen_epoch"] == best
    assert summary["validation_error"] == pytest.approx(errors[-1], rel=1e-4)
    assert summary["chosen_validation_error"] == pytest.approx(errors[best], rel=1e-4)
    chosen = {task: found[1][best][f"test/{task}/accuracy"] for task in train.targets}
    close(summary["chosen_scores"], chosen)
    close(summary["chosen_clean_score"], (chosen["a"] + chosen["c"]) / 2)
    assert summary["validation_scores"]["a"] == found[1][-1]["validation/a/accuracy"]


def test_another_loss_is_trained_on_and_the_plain_one_reported(tmp_path):
    # A rate of nearly nothing: both networks stay what they were, so only the losses themselves can differ.
    fields = {"method": "uniform", "learning_rate": 1e-12, "epochs": 1}
    plain, other = (run(tmp_path / loss, loss=loss, **fields) for loss in ("plain", "gce"))
    assert not np.allclose(plain[0][:, 1], other[0][:, 1])
    names = [name for name in plain[1][0] if name.startswith(("validation/", "test/")) and name.endswith("/loss")]
    assert [other[1][0][name] for name in names] == pytest.approx([plain[1][0][name] for name in names], rel=1e-5)
    assert other[2]["loss"] == "gce"


def test_every_task_is_hit_by_noise_on_request(tmp_path):
    summary = run(tmp_path / "run", noisy_tasks=("a", "b", "c"))[2]
    assert summary["clean_score"] is None
    assert summary["noisy_score"] == summary["overall_score"]


def test_benchmark_and_label_are_what_tables_show(tmp_path):
    plain, labelled = (run(tmp_path / str(label), label=label)[2] for label in (None, "mine"))
    assert (plain["benchmark"], plain["label"], labelled["label"]) == ("small-world", "excess", "mine")


def test_data_and_seed_reach_the_loader(tmp_path, monkeypatch):
    told = []

    def load(data, seed):
        told.append((data, seed))
        return small_world.load(None, seed)

    monkeypatch.setitem(base._REGISTRY, "small-world", base.Entry("small-world", load, ""))
    run(tmp_path / "run", data=str(tmp_path), seed=5, epochs=1)
    assert told == [(tmp_path, 5)]


def test_device_and_precision_are_used(tmp_path):
    full = Run(RunConfig("small-world", "excess", **BASE), tmp_path / "full")
    half = Run(RunConfig("small-world", "excess", precision="bf16-mixed", **BASE), tmp_path / "half")
    types = []
    for one in (full, half):
        one.learner.network.trunk[0].register_forward_hook(lambda module, args, output: types.append(output.dtype))
        step = one.learner.step(next(one.data.train.shuffled(0, 0)), torch.Generator())
        parameters = list(one.learner.network.parameters())
        assert {p.dtype for p in parameters} == {step.losses.dtype, step.weights.dtype} == {torch.float32}
        assert {p.device.type for p in parameters} == {"cpu"}
    assert types == [torch.float32, torch.bfloat16]
    assert yaml.safe_load((tmp_path / "full" / "config.yaml").read_text())["device"] == "cpu"
