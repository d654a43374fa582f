"""Cost of `import excessmtl` on top of torch and numpy, in fresh processes."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from excessmtl.lab.speed.machine import machine

SCRIPT = """
import time, numpy, torch
wall, cpu = time.perf_counter(), time.process_time()
import excessmtl
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=11)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "import_time.json")
    options = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # Bytecode is kept, as it is for an installed package.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    found = []
    # The first process fills the caches of the disk and of bytecode, and is not counted.
    for _ in range(options.processes + 1):
        command = [sys.executable, "-c", SCRIPT]
        result = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found.append([1e3 * float(seconds) for seconds in result.stdout.split()])
    numbers = {}
    for name, times in zip(("wall_ms", "cpu_ms"), zip(*found[1:], strict=True), strict=True):
        numbers[name] = [round(value, 1) for value in statistics.quantiles(times, n=4)]
        low, median, high = numbers[name]
        print(f"import excessmtl on top of torch and numpy, {name}: {median} (quartiles {low} to {high})")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine(), "processes": options.processes, **numbers}
    options.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
