"""Two processes that share a batch and the parameters train as one process with the whole batch does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_two_processes_with_half_the_parameters_each_train_as_one():
    worker = Path(__file__).with_name("fully_sharded_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(worker)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # there may be fewer devices than processes
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    assert "equal" in result.stdout
