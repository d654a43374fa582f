import math
from dataclasses import replace

import pytest
import torch

from excessmtl.lab.data.base import Split
from excessmtl.lab.data.kinds import binary, classification, depth, regression, segmentation
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.runs.summary import chosen_epoch
from excessmtl.lab.training.evaluate import constant_losses, validation_error


def test_the_unit_of_a_loss_is_that_of_the_best_constant():
    known = [0.0, 0.0, 1.0, 2.0]
    targets = {
        "class": torch.tensor(known),
        "bit": torch.tensor([0.0, 0, 0, math.nan, 1]),
        "number": torch.tensor([[1.0, 10], [3.0, 30]]),
        "same": torch.ones(3),
        "pixels": torch.tensor([[[0, 1], [1, -1]], [[0, -1], [-1, -1]]]),
        "map": torch.tensor([1.0, 2, 4, 0]).reshape(1, 1, 2, 2),
    }
    kinds = {
        "class": (3, classification),
        "bit": (1, binary),
        "number": (2, regression),
        "same": (1, regression),
        "pixels": (2, segmentation),
        "map": (1, depth),
    }
    units = constant_losses([Task(name, *kind) for name, kind in kinds.items()], Split(torch.zeros(1), targets))
    expected = {
        "class": 1.5 * math.log(2),
        "bit": -0.75 * math.log(0.75) - 0.25 * math.log(0.25),
        "number": (1 + 100) / 2,
        "same": 1.0,
        "pixels": math.log(2),
        "map": 1.0,  # the median is 2, zeros are unknown
    }
    assert units == pytest.approx(expected, rel=1e-3)


def test_the_epoch_of_the_lowest_mean_error():
    kinds = {"a": (3, classification), "b": (1, regression), "c": (1, replace(depth, score="abs_error"))}
    tasks = [Task(name, *kind) for name, kind in kinds.items()]
    units = {"a": 5.0, "b": 7.0, "c": 2.0}
    values = [(0.1, 0.9, 3.0), (0.8, 0.5, 2.0), (0.9, 0.4, 1.0), (0.9, 0.9, 4.0)]
    names = ("validation/a/accuracy", "validation/b/nmse", "validation/c/loss")
    rows = [dict(zip(names, row, strict=True)) for row in values]
    assert validation_error(rows[0], tasks, units) == pytest.approx((0.9 + 0.9 + 1.5) / 3)

    def chosen(*rows):
        return chosen_epoch([validation_error(row, tasks, units) for row in rows])

    assert chosen(*rows) == 2
    diverged = {**rows[2], "validation/b/nmse": math.nan}
    assert chosen(diverged, rows[1]) == 1
    assert chosen(diverged, {}) is None
