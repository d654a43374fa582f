"""Data of the user's own: a module outside the repository, objects, datasets; test_own_data_page.py has the page."""

import csv
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from commands import excessmtl, refused
from excessmtl import lab
from report_data import steps_of, without_time

PAGE = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text(encoding="utf-8")
RULE = """
from dataclasses import dataclass

from excessmtl.methods.base import Decision, Rule


@dataclass(frozen=True)
class Fixed(Rule):
    first: float = 0.75

    def update(self, state, seen):
        return Decision(torch.tensor([self.first, 1 - self.first]), state)
"""
PACKAGE = re.search(r"```python\n# my_data.py\n(.*?)```", PAGE, flags=re.DOTALL)[1] + RULE
"""The benchmark of the page on own data, and a rule."""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder with a module `scales_of_mine`, and the current folder of the test."""
    (tmp_path / "scales_of_mine.py").write_text(PACKAGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("scales_of_mine", None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scales_of_mine:laod"], "benchmark 'scales_of_mine:laod' cannot be imported: 'scales_of_mine' has no 'laod'"),
        (["scales_of_mine:nn"], "is neither a Benchmark nor a function"),
        (["scales_of_mine:load", "--method", "scales_of_mine:load"], "must be a class derived from Rule"),
        (["scales_of_mine:load", "--method", "scales_of_mine:Fixed", "--option", "last=1"], "do not fit method"),
        (["scales_of_mine:load", "--data", "."], "takes no data; leave it out"),
        (["scales_of_mine:load", "--benchmark-option", "rows=many"], "load' must be a whole number, found 'many'"),
        (["scales_of_mine:load", "--targets", "a"], "targets is not an option of 'scales_of_mine:load'"),
        (["scales_of_mine:load", "--optimiser", "lion"], "optimiser must be one of 'adam', 'adamw' or 'sgd'"),
        (["scales_of_mine:load", "--optimiser-option", "momentum=0.9"], "do not fit 'adam'"),
        (["scales_of_mine:load", "--noise", "0.1", "--noisy-tasks", ""], "noisy_tasks is empty"),
    ],
)
def test_mistakes_are_one_line(package, arguments, message):
    refused(excessmtl("train", *arguments, "--device", "cpu", "--out", "run"), message)
    assert not (package / "run").exists()


# ------------------------------------------------------------------ objects, datasets


class Pairs(Dataset):
    """Items with a structure of their own."""

    def __init__(self, x, targets):
        self.x, self.values = x, targets

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        inputs = {"left": self.x[index, :2], "right": self.x[index, 2:]}
        return inputs, {task: target[index] for task, target in self.values.items()}


class Joins(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, inputs):
        x = inputs if isinstance(inputs, torch.Tensor) else torch.cat([inputs["left"], inputs["right"]], 1)
        return self.layer(x).relu()


def world(form, missing=False):
    """The same numbers as tensors or datasets."""
    generator = torch.Generator().manual_seed(0)
    splits = []
    for count in (44, 20, 20):
        x = torch.randn(count, 4, generator=generator)
        targets = {"a": x[:, :1] ** 2, "b": (x[:, 1] > 0).float(), "c": (x[:, 2] > 0).long()}
        if missing:
            targets["a"][::3] = torch.nan
            targets["b"][1::2] = torch.nan
        splits.append(lab.Split(x, targets) if form == "tensors" else lab.split_of(Pairs(x, targets)))
    return lab.Benchmark(
        name="pairs",
        source="made up",
        tasks=(lab.Task("a", 1, lab.regression), lab.Task("b", 1, lab.binary), lab.Task("c", 2, lab.classification)),
        train=splits[0],
        validation=splits[1],
        test=splits[2],
        recipe=lab.Recipe(learning_rate=0.01, weight_decay=0.0, batch_size=11, epochs=3),
        noisy_tasks=("b",),
        build_trunk=Joins,
        build_head=lambda task: nn.Linear(8, task.outputs),
        prepare=lambda inputs: inputs,
    )


@pytest.mark.parametrize("method", ["excess", "moml"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_dataset_trains_as_its_tensors_do(tmp_path, method, missing):
    settings = {"method": method, "noise": 0.4, "device": "cpu"}
    tensors = lab.train(world("tensors", missing), out=tmp_path / "tensors", **settings)
    dataset = lab.train(world("dataset", missing), out=tmp_path / "dataset", **settings)
    assert without_time(tensors.summary) == without_time(dataset.summary)
    one, other = steps_of(tmp_path / "tensors"), steps_of(tmp_path / "dataset")
    for name in ("weights", "losses", "excess_risks"):
        np.testing.assert_array_equal(one[name], other[name])


def test_worker_processes_read_the_same(tmp_path):
    here = lab.train(world("dataset"), out=tmp_path / "here", device="cpu", epochs=1)
    there = lab.train(replace(world("dataset"), workers=1), out=tmp_path / "there", device="cpu", epochs=1)
    assert here.scores == there.scores


def test_missing_labels_are_left_out_of_losses_and_scores(tmp_path):
    made = world("tensors", missing=True)
    result = lab.train(made, "uniform", out=tmp_path / "run", device="cpu", epochs=1, batch_size=44)
    torch.manual_seed(0)
    trunk = Joins()
    heads = {task.name: nn.Linear(8, task.outputs) for task in made.tasks}
    order = torch.randperm(44, generator=torch.Generator().manual_seed(0))
    known = {task: ~target[order].isnan().reshape(-1) for task, target in made.train.targets.items()}
    z = trunk(made.train.inputs[order])
    expected = [
        (heads["a"](z) - made.train.targets["a"][order])[known["a"]].square().mean(),
        nn.functional.binary_cross_entropy_with_logits(
            heads["b"](z)[known["b"], 0], made.train.targets["b"][order][known["b"]]
        ),
        nn.functional.cross_entropy(heads["c"](z), made.train.targets["c"][order]),
    ]
    losses = steps_of(tmp_path / "run")["losses"]
    np.testing.assert_allclose(losses[0], torch.stack(expected).detach().numpy(), rtol=1e-6)
    outputs = result.network(made.test.inputs)
    target = made.test.targets["b"]
    right = (outputs["b"][:, 0] > 0) == (target > 0.5)
    assert result.scores["b"] == pytest.approx(right[~target.isnan()].double().mean().item())


def test_a_batch_without_any_label_trains_nothing(tmp_path):
    made = world("tensors", missing=True)
    for target in ("a", "b"):
        made.train.targets[target][:40] = torch.nan
    two = replace(made, tasks=made.tasks[:2], noisy_tasks=())
    for split in (two.train, two.validation, two.test):
        split.targets.pop("c")
    for method in ("excess", "single"):
        result = lab.train(two, method, out=tmp_path / method, device="cpu", epochs=3, batch_size=2)
        assert np.isnan(steps_of(tmp_path / method)["losses"]).all(axis=1).any()
        assert all(np.isfinite(score) for score in result.scores.values())


def test_a_run_goes_on_after_epochs_with_fewer_metrics(tmp_path):
    made = world("tensors")
    fewer = replace(lab.binary, metrics=lab.binary.metrics[:1])
    before = replace(made, tasks=tuple(replace(task, kind=fewer) if task.name == "b" else task for task in made.tasks))
    lab.train(before, out=tmp_path / "run", device="cpu", epochs=1)
    result = lab.train(made, out=tmp_path / "run", device="cpu", epochs=2, resume=True)
    with (tmp_path / "run" / "metrics.csv").open() as file:
        areas = [row["test/b/roc_auc"] for row in csv.DictReader(file)]
    assert areas == ["", str(result.summary["metrics"]["b/roc_auc"])]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: {"tasks": ()}, "has no tasks"),
        (lambda made: {"tasks": (*made.tasks, made.tasks[0])}, "has 2 tasks named 'a'"),
        (lambda made: {"tasks": (lab.Task("type", 1, lab.regression),)}, "rename it"),
        (lambda made: {"tasks": (lab.Task("d", 1, lab.regression),), "noisy_tasks": ()}, "has no targets for task 'd'"),
        (lambda made: {"noisy_tasks": ("d",)}, "noisy_tasks of 'pairs' names 'd'"),
        (lambda made: {"tasks": (lab.Task("c", 1, lab.classification),), "noisy_tasks": ()}, "classes from 0 to 1"),
        (lambda made: {"test": lab.Split(made.test.inputs[:5], made.test.targets)}, "has 5 inputs and 20 targets"),
        (
            lambda made: {
                "test": lab.Split(made.test.inputs, {**made.test.targets, "a": torch.full((20, 1), torch.nan)})
            },
            "the test split of 'pairs' has no label for task 'a'",
        ),
    ],
)
def test_a_benchmark_that_cannot_work_is_refused_in_one_sentence(tmp_path, change, message):
    made = world("tensors")
    with pytest.raises(ValueError, match=message) as refused:
        lab.train(replace(made, **change(made)), out=tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_objects_are_refused_where_workers_load(tmp_path):
    with pytest.raises(ValueError, match="every worker loads its own"):
        lab.sweep([world("tensors")], ["uniform"], out=tmp_path)


def test_items_of_another_form_are_refused():
    with pytest.raises(ValueError, match=r"must be pairs \(inputs, \{task: target\}\), found Tensor"):
        lab.split_of(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="DataLoader has no length or no items by number; pass a Dataset"):
        lab.split_of(DataLoader(torch.zeros(3, 2)))
