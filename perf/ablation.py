"""What each fast way buys: a step without it, over a step with all of them, side by side in one process.

python perf/ablation.py --device cuda --json perf/results/ablation_cuda.json
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import excessmtl
from excessmtl.files import atomic_write
from excessmtl.gradients.ways import WAYS, Fastest
from excessmtl.lab.speed.clock import Clock
from excessmtl.lab.speed.machine import machine
from excessmtl.lab.speed.measure import _ratios
from excessmtl.lab.speed.networks import NETWORKS, USUAL, Problem
from excessmtl.recording.recorded import Recorded

Step = Callable[[], object]
MEASURED = {"cuda": ("mlp-7", "lenet-2", "resnet18-4", "resnet18-40", "segnet-3", "bert-3")}
"""Networks on a GPU: one of each kind."""


def without(*ways: str) -> Callable[[], Recorded]:
    """An engine that does not take these ways."""
    return lambda: Recorded(Fastest(ways=WAYS - set(ways)))


EXCESS: Mapping[str, Mapping[str, Any]] = {
    "all ways": {},
    "without linear heads": {"engine": without("linear heads")},
    "without separate heads": {"engine": without("separate heads")},
    "without CUDA graphs": {"record": False},
    "reference": {"engine": lambda: "reference"},
}
PAPER: Mapping[str, Mapping[str, Any]] = {
    "all ways": {"estimator": "paper"},
    "one task at a time": {"estimator": "paper", "tasks_at_once": 1},
    "reference": {"estimator": "paper", "engine": lambda: "reference"},
}
UNIFORM: Mapping[str, Mapping[str, Any]] = {
    "all ways": {},
    "without losses only": {"engine": without("losses only")},
}


def step_of(problem: Problem, method: str, options: Mapping[str, Any], as_list: bool = False) -> Step:
    """One step with a balancer of its own; `as_list`: where no representation is known."""
    made = {name: value() if name == "engine" else value for name, value in options.items()}
    shared = list(problem.trunk.parameters()) if as_list else problem.trunk
    balancer = excessmtl.create(method, tasks=problem.tasks, shared=shared, **made)
    parameters = list(problem.parameters())

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        balancer.backward(problem()[1])

    return step


def measured(device: torch.device, seconds: float) -> list[dict[str, Any]]:
    """One row per network, method and way: the ratio to all ways, with quartiles, and peak memory."""
    clock, rows = Clock(device), []
    for name in MEASURED.get(device.type, USUAL["cpu"]):
        for method, as_list, variants in (
            ("excess", False, EXCESS),
            ("excess, paper", False, PAPER),
            ("uniform, no representation", True, UNIFORM),
        ):
            network, rule = NETWORKS[name], method.partition(",")[0]
            steps = {way: step_of(network.problem(device), rule, options, as_list) for way, options in variants.items()}
            times = clock.side_by_side(steps, seconds)
            for way in steps:
                ratio, peak = _ratios(times[way], times["all ways"]), clock.peak_memory(steps[way])
                rows.append({"network": name, "method": method, "way": way, "ratio": ratio, "peak": peak})
                print(name, method, way, *ratio, None if peak is None else round(peak / 2**20))
            del steps
    return rows


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = measured(torch.device(arguments.device), arguments.seconds)
    if arguments.json is not None:
        command = f"python perf/ablation.py --device {arguments.device} --seconds {arguments.seconds:g}"
        content = {"command": command, "machine": machine(arguments.device), "rows": rows}
        with atomic_write(arguments.json) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
