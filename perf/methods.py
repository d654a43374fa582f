"""What a step costs with every method, relative to `uniform`; and the table of docs/choosing.md.

    PYTHONPATH=src python perf/methods.py           # measures (a few minutes, one thread), writes both
    PYTHONPATH=src python perf/methods.py --page    # the table alone, from the numbers that are there

One process, one thread, processor time. All methods take turns on the same network, in random order, so whatever else
the machine does hits all of them alike. A step is forward and backward, no optimiser.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

import excessmtl
from excessmtl.bench.clock import Clock
from excessmtl.bench.machine import machine
from excessmtl.bench.networks import NETWORKS, Problem
from excessmtl.files import atomic_write
from excessmtl.methods.catalogue import CATALOGUE, rows

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "choosing.md", ROOT / "perf" / "results" / "methods_cpu.json"
MEASURED = {"mlp-7": NETWORKS["mlp-7"], "resnet18-4": replace(NETWORKS["resnet18-4"], batch=8)}
_START, _END = "<!-- methods -->", "<!-- /methods -->"
_REFERENCE = "uniform"


def _step(problem: Problem, name: str) -> Callable[[], object]:
    balancer = excessmtl.create(name, tasks=problem.tasks, shared=problem.trunk)

    def step() -> None:
        problem.zero_grad()
        balancer.backward(problem()[1])

    return step


def measure(seconds: float) -> dict[str, object]:
    """Ratios of the medians, for every network and method."""
    torch.set_num_threads(1)
    networks = {}
    for name, network in MEASURED.items():
        problem = network.problem(torch.device("cpu"))
        steps = {method: _step(problem, method) for method in excessmtl.list_methods()}
        times = Clock(torch.device("cpu")).side_by_side(steps, seconds)
        middle = {method: median(found) for method, found in times.items()}
        networks[name] = {
            "summary": f"{network.summary}, {network.tasks} tasks, batches of {network.batch}",
            "uniform_ms": round(middle[_REFERENCE], 3),
            "rounds": len(times[_REFERENCE]),
            "ratio": {method: round(found / middle[_REFERENCE], 3) for method, found in middle.items()},
        }
    return {"command": "python perf/methods.py", "machine": machine(), "networks": networks}


def table() -> str:
    """The table of the page."""
    networks = json.loads(RESULTS.read_text(encoding="utf-8"))["networks"] if RESULTS.exists() else {}
    header = ["method", "paper", "needs", *(f"cost, {name}" for name in networks)]
    header += ["missing task", "scale-free", "good for"]
    lines = [header, ["---"] * len(header)]
    for row in rows():
        name = row["method"]
        ratios = [networks[network]["ratio"].get(name) for network in networks]
        costs = ["not measured" if ratio is None else f"x{ratio:.2f}" for ratio in ratios]
        paper = f"[{row['paper']} {row['year']}]({CATALOGUE[name].link})"
        lines.append(
            [f"`{name}`", paper, row["needs"], *costs, row["missing task"], row["scale-free"], row["good for"]]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def render(page: str) -> str:
    """The page with its table replaced by what the catalogue and the numbers say now."""
    before, rest = page.split(_START)
    _, after = rest.split(_END)
    return f"{before}{_START}\n\n{table()}\n\n{_END}{after}"


def main() -> None:
    """Measure, unless told not to, and rewrite the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the table alone")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each network")
    arguments = parser.parse_args()
    if not arguments.page:
        with atomic_write(RESULTS) as file:
            file.write((json.dumps(measure(arguments.seconds), indent=2) + "\n").encode())
    with atomic_write(PAGE) as file:
        file.write(render(PAGE.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    main()
