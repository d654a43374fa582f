"""What a step costs with every method, relative to `uniform`.

    PYTHONPATH=src python perf/methods.py    # a few minutes, one thread; writes perf/results/methods_cpu.json
    PYTHONPATH=src python perf/methods.py --methods forum    # only these; the file keeps what it has of the others
    python -m research.choosing              # shows it in docs/choosing.md

One process, one thread, processor time. All methods take turns on the same network, in random order, so whatever else
the machine does hits all of them alike. A step is forward and backward, no optimiser.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

import excessmtl
from excessmtl.files import atomic_write
from excessmtl.lab.speed.clock import Clock
from excessmtl.lab.speed.machine import machine
from excessmtl.lab.speed.networks import NETWORKS, Problem

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "perf" / "results" / "methods_cpu.json"
MEASURED = {"mlp-7": NETWORKS["mlp-7"], "resnet18-4": replace(NETWORKS["resnet18-4"], batch=8)}
_REFERENCE = "uniform"
_METHODS = [name for name in excessmtl.list_methods() if name != "bayes_agg"]
"""Without labels `bayes_agg` is another `uniform`."""


def _step(problem: Problem, name: str) -> Callable[[], object]:
    balancer = excessmtl.create(name, tasks=problem.tasks, shared=problem.trunk)

    def step() -> None:
        problem.zero_grad()
        balancer.backward(problem()[1])

    return step


def measure(seconds: float, methods: list[str]) -> dict[str, Any]:
    """Ratios of the medians, for every network and these methods."""
    torch.set_num_threads(1)
    networks = {}
    for name, network in MEASURED.items():
        problem = network.problem(torch.device("cpu"))
        steps = {method: _step(problem, method) for method in [_REFERENCE, *methods]}
        times = Clock(torch.device("cpu")).side_by_side(steps, seconds)
        middle = {method: median(found) for method, found in times.items()}
        networks[name] = {
            "summary": f"{network.summary}, {network.tasks} tasks, batches of {network.batch}",
            "uniform_ms": round(middle[_REFERENCE], 3),
            "rounds": len(times[_REFERENCE]),
            "ratio": {method: round(found / middle[_REFERENCE], 3) for method, found in middle.items()},
        }
    return {"command": "python perf/methods.py", "machine": machine(), "networks": networks}


def main() -> None:
    """Measure, then write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each network")
    parser.add_argument("--methods", nargs="+", choices=_METHODS, help="default: all")
    options = parser.parse_args()
    # Before the file is opened: it takes minutes.
    found = measure(options.seconds, options.methods or _METHODS)
    if options.methods:
        before = json.loads(RESULTS.read_text(encoding="utf-8"))
        for name, network in found["networks"].items():
            new = {method: network["ratio"][method] for method in options.methods}
            before["networks"][name]["ratio"].update(new)
        found = before
    with atomic_write(RESULTS) as file:
        file.write((json.dumps(found, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
