import math

import pytest
import torch

from excessmtl.benchmarks.base import Split
from excessmtl.benchmarks.kinds import binary, classification, depth, regression, segmentation
from excessmtl.benchmarks.tasks import Task
from excessmtl.training.choice import chosen_epoch, constant_losses, validation_loss


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


def test_the_epoch_of_the_lowest_mean_of_relative_losses():
    units = {"a": 1.0, "b": 100.0}
    rows = [{"validation/a/loss": a, "validation/b/loss": b} for a, b in [(3.0, 1), (1.0, 90), (1.2, 60), (0.9, 200)]]
    assert validation_loss(rows[0], units) == pytest.approx(1.505)
    assert chosen_epoch(rows, units) == 2
    diverged = {"validation/a/loss": math.nan, "validation/b/loss": 0.0}
    assert chosen_epoch([diverged, rows[1]], units) == 1
    assert chosen_epoch([diverged, {}], units) is None
