"""Cost of a step of the training loop over the bare one, MultiMNIST on the CPU.

Bare: forward, losses, `balancer.backward` and the optimiser's step, on batches that are cut and prepared beforehand.
The loop adds what a run does besides: shuffling, cutting and preparing batches, Fabric, the record of every step, and
the progress bar. Both start from the same weights and see the same batches, in one process, an epoch of one and an
epoch of the other in turns.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import excessmtl
from excessmtl.lab.data.base import Targets
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.speed.machine import machine
from excessmtl.lab.training.batches import Inputs, prepared
from excessmtl.lab.training.loop import Run
from excessmtl.lab.training.model import MultiTaskModel
from excessmtl.lab.training.progress import ProgressBar, Watcher

WARM_UP = 2
METHODS = ("uniform", "excess")


class Bare:
    """The steps alone, as someone without the laboratory would write them."""

    def __init__(self, run: Run) -> None:
        torch.manual_seed(run.config.seed)
        self.model = MultiTaskModel(run.benchmark)
        rate, decay = run.config.learning_rate, run.config.weight_decay
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=rate, weight_decay=decay)
        self.balancer = excessmtl.create(run.config.method, tasks=run.learner.tasks, shared=self.model.trunk)
        self.loss_of = run.learner.losses
        self.run = run

    def cut(self, number: int) -> list[tuple[Inputs, Targets]]:
        """The batches of an epoch."""
        batches = self.run.data.train.shuffled(self.run.config.seed, number)
        return [(prepared(batch, self.run.benchmark), batch.targets) for batch in batches]

    def epoch(self, batches: list[tuple[Inputs, Targets]]) -> None:
        """Train on them."""
        for inputs, targets in batches:
            self._step(inputs, targets)

    # A function of its own, so that the graph of one step is gone before the next is built, as it is in the loop.
    def _step(self, inputs: Inputs, targets: Targets) -> None:
        self.optimiser.zero_grad()
        outputs = self.model(inputs)
        losses = {task: self.loss_of[task](outputs[task], target) for task, target in targets.items()}
        self.balancer.backward(losses)
        self.optimiser.step()


class Clock:
    """Wall-clock time, and the processor time of all threads, which other programs disturb less."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.wall: dict[str, list[float]] = {"bare": [], "loop": []}
        self.cpu: dict[str, list[float]] = {"bare": [], "loop": []}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Milliseconds per step of what happens inside."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.cpu[name].append(1e3 * (time.process_time() - cpu) / self.steps)
        self.wall[name].append(1e3 * (time.perf_counter() - wall) / self.steps)


def measure(method: str, rounds: int, bar: bool) -> dict[str, object]:
    """Milliseconds per step of both, and their ratio, round by round."""
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        run = Run(RunConfig("multimnist", method, noise=0.8, device="cpu", epochs=rounds), Path(folder) / "run")
        bare, clock = Bare(run), Clock(run.data.train.steps)
        # A terminal that nobody sees, drawn in full.
        shown = ProgressBar(Console(file=nowhere, force_terminal=True), rounds, run.primary) if bar else None
        run.watcher = shown or Watcher()
        with shown or nullcontext():
            for number in range(rounds + WARM_UP):
                clock = clock if number != WARM_UP else Clock(run.data.train.steps)
                batches = bare.cut(number)
                for name in ("bare", "loop") if number % 2 else ("loop", "bare"):
                    with clock.timed(name):
                        bare.epoch(batches) if name == "bare" else run._epoch(number)
        for one, other in zip(bare.model.parameters(), run.learner.network.parameters(), strict=True):
            assert torch.equal(one, other), "the two did not do the same"
    return {
        "method": method,
        "progress_bar": bar,
        "batch_size": run.config.batch_size,
        "steps_per_round": clock.steps,
        "rounds": rounds,
        **{f"{name}_ms": round(statistics.median(times), 3) for name, times in clock.wall.items()},
        "ratio": spread(clock.wall),
        "cpu_ratio": spread(clock.cpu),
    }


def spread(times: dict[str, list[float]]) -> list[float]:
    """Lower quartile, median and upper quartile of the ratio."""
    ratios = [loop / alone for loop, alone in zip(times["loop"], times["bare"], strict=True)]
    return [round(value, 3) for value in statistics.quantiles(ratios, n=4)]


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "loop.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [measure(method, options.rounds, bar) for method in METHODS for bar in (False, True)]
    columns = ("method", "progress_bar", "bare_ms", "loop_ms", "ratio", "cpu_ratio")
    table = Table(*columns, title="Milliseconds per step, and loop over bare: lower quartile, median, upper quartile")
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    Console().print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), "results": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
