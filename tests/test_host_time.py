"""What a step takes on the host: which files it enters, how many calls, and that nothing grows with the trunk's depth.

In a process of its own: the calls of a step depend on what thousands of tests have left behind.
"""

import gc
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from commands import ENVIRONMENT
from models import DEVICE

SOURCE = str(Path(excessmtl.__file__).parent)
TASKS = list("abcdefg")


def entered(layers, **options):
    """The calls of our functions in one step after a few, by file; calls of functions without a file do not count."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(layers)]
    trunk = nn.Sequential(*blocks).to(DEVICE)
    heads = {task: nn.Linear(32, 1, device=DEVICE) for task in TASKS}
    balancer = excessmtl.create("excess", tasks=TASKS, shared=trunk, **options)
    x = torch.randn(64, 32, device=DEVICE)

    def losses():
        z = trunk(x)
        return {task: mse_loss(head(z), x[:, :1]) for task, head in heads.items()}

    for _ in range(5):  # constants and recordings are made
        balancer.backward(losses())
    calls: Counter[str] = Counter()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            calls[frame.f_code.co_filename] += 1

    for _ in range(3):  # the first of them may clear away what earlier steps have left
        last = losses()
        gc.collect()
        gc.disable()
        calls.clear()
        sys.setprofile(note)
        try:
            balancer.backward(last)
        finally:
            sys.setprofile(None)
            gc.enable()
    return calls


@cache
def in_a_fresh_process():
    """The calls of a default step with a deep trunk and a shallow one, and those of the paper's estimate, by file."""
    estimates = ({"layers": 30}, {"layers": 3}, {"layers": 3, "estimator": "paper", "engine": "reference"})
    code = f"import json; from test_host_time import entered; print(json.dumps([entered(**e) for e in {estimates}]))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_call_grows_with_the_depth_of_the_trunk():
    """And there are few calls: the graph above z is searched in every step, some 30 calls per task."""
    deep, shallow, _ = in_a_fresh_process()
    assert deep == shallow
    assert sum(deep.values()) <= 500
