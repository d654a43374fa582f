"""`--loss`: every task of a kind that has it trains with it; it is saved, resumed, and learns from training alone."""

import pytest
import torch

from excessmtl import lab
from excessmtl.lab.data.kinds import binary, classification, depth, regression
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.runs.checkpoint import load
from excessmtl.lab.training.learner import task_losses


def test_the_loss_of_a_kind_or_its_own():
    tasks = [Task("a", 3, classification), Task("b", 1, binary), Task("c", 1, regression), Task("d", 1, depth)]
    robust = task_losses(tasks, "robust")
    assert [isinstance(robust[task], torch.nn.Module) for task in "abcd"] == [True, True, True, False]
    assert task_losses(tasks, "huber")["a"] is classification.loss
    assert task_losses(tasks, "plain")["c"] is regression.loss
    with pytest.raises(ValueError, match="loss 'gce' is not there for any of these tasks; choose from plain, robust"):
        task_losses(tasks[1:2], "gce")
    outputs, numbers = torch.randn(4, 1), torch.randn(4)
    torch.testing.assert_close(robust["c"](outputs, numbers), regression.loss(outputs, numbers))
    assert robust["a"](torch.randn(2, 3, 2, 2), torch.full((2, 2, 2), -1)) == 0


def test_a_run_is_resumed_with_what_its_losses_have_seen(tmp_path):
    settings = {"noise": 0.4, "limit_batches": 6, "loss": "robust", "device": "cpu"}
    whole = lab.train("digit-domains", out=tmp_path / "whole", epochs=2, **settings)
    lab.train("digit-domains", out=tmp_path / "parts", epochs=1, **settings)
    parts = lab.train("digit-domains", out=tmp_path / "parts", epochs=2, resume=True, **settings)
    assert parts.summary["scores"] == whole.summary["scores"]
    assert whole.summary["loss"] == "robust"
    seen = load(tmp_path / "parts" / "checkpoint")["losses"]
    assert seen["plain.loss.rate.steps"] == 12
    torch.testing.assert_close(seen, load(tmp_path / "whole" / "checkpoint")["losses"], rtol=0, atol=0)
    plain = lab.train("digit-domains", out=tmp_path / "plain", epochs=2, **{**settings, "loss": "plain"})
    assert plain.summary["scores"] != whole.summary["scores"]
