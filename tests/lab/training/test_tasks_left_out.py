"""A run in which no task can be trained says so."""

import pytest
import small_world
import torch

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import Run


def test_a_run_whose_tasks_are_all_left_out_warns(tmp_path):
    made = small_world.load(None, 0, kinds="regression")
    made.train.inputs.fill_(torch.nan)
    config = RunConfig("small-world", "excess", epochs=2, device="cpu")
    with pytest.warns(UserWarning, match="every task of a step was left out"):
        assert Run(config, tmp_path, benchmark=made).execute()["completed"]
