"""Two processes that share a batch train with `MultiTaskLoss` as one process with the whole batch does."""

import os
import subprocess
import sys
from pathlib import Path


def test_two_processes_train_as_one():
    worker = Path(__file__).with_name("multi_task_loss_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(worker)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # there may be fewer devices than processes
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    assert "all equal" in result.stdout
