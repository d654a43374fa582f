"""Two processes that share a batch estimate the noise as one process with the whole batch does."""

import subprocess
import sys
from pathlib import Path


def test_two_processes_make_one_estimate():
    worker = Path(__file__).with_name("robust_losses_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(worker)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    assert "all equal" in result.stdout
