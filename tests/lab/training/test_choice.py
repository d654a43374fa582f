import math
from dataclasses import replace

import pytest

from excessmtl.lab.data.kinds import classification, depth, regression
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.runs.summary import chosen_epoch
from excessmtl.lab.training.evaluate import validation_error


def test_the_epoch_of_the_lowest_mean_error():
    kinds = {"a": (3, classification), "b": (1, regression), "c": (1, replace(depth, score="abs_error"))}
    tasks = [Task(name, *kind) for name, kind in kinds.items()]
    values = [(0.1, 0.9, 3.0), (0.8, 0.5, 2.0), (0.9, 0.4, 1.0), (0.9, 0.9, 4.0)]
    names = ("validation/a/accuracy", "validation/b/nmse", "validation/c/loss")
    rows = [dict(zip(names, row, strict=True)) for row in values]
    assert validation_error(rows[0], tasks) == pytest.approx((0.9 + 0.9 + 3.0) / 3)

    def chosen(*rows):
        return chosen_epoch([validation_error(row, tasks) for row in rows])

    assert chosen(*rows) == 2
    diverged = {**rows[2], "validation/b/nmse": math.nan}
    assert chosen(diverged, rows[1]) == 1
    assert chosen(diverged, {}) is None
