"""A run in which no task can be trained says so."""

import warnings

import small_world
import torch

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import Run


def warned(benchmark, folder):
    """What a run warns about, and its summary."""
    config = RunConfig("small-world", "excess", epochs=2, device="cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        summary = Run(config, folder, benchmark=benchmark).execute()
    return [str(one.message) for one in caught if "left out" in str(one.message)], summary


def test_a_run_whose_tasks_are_all_left_out_warns(tmp_path):
    made = small_world.load(None, 0, kinds="regression")
    made.train.inputs.fill_(torch.nan)
    found, summary = warned(made, tmp_path)
    assert summary["completed"]
    assert "every task of a step was left out" in found[0]


def test_nan_in_the_targets_of_a_run_is_a_missing_label(tmp_path):
    made = small_world.load(None, 0, kinds="regression")
    for number, target in enumerate(made.train.targets.values()):
        target[number::3] = torch.nan
    found, summary = warned(made, tmp_path)
    assert not found
    assert all(score is not None for score in summary["scores"].values())
