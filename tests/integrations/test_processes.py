"""Two processes that share a batch train as one with the whole batch, in every framework."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_two_processes_train_as_one_in_every_framework():
    worker = Path(__file__).with_name("processes_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(worker)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    assert "all equal" in result.stdout
