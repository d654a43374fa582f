"""What a step of `excessmtl train` costs over a bare one: MultiMNIST on the CPU.

Bare: forward, losses, `balancer.backward` and the optimiser's step, on batches that are cut and prepared beforehand.
The loop adds what a run does besides: shuffling, cutting and preparing batches, Fabric, the record of every step, and
the progress bar. Both start from the same weights and see the same batches, in one process, an epoch of one and an
epoch of the other in turns.
"""

import os
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

import excessmtl
from excessmtl.lab.data.base import Targets
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.speed.clock import Clock
from excessmtl.lab.speed.measure import ratios
from excessmtl.lab.speed.variants import Step
from excessmtl.lab.training.batches import Inputs, prepared
from excessmtl.lab.training.loop import Run
from excessmtl.lab.training.model import MultiTaskModel
from excessmtl.lab.training.progress import ProgressBar

_WARM_UP = 2


class _Bare:
    """The steps alone, as someone without the laboratory would write them."""

    def __init__(self, run: Run) -> None:
        torch.manual_seed(run.config.seed)
        self.model = MultiTaskModel(run.benchmark)
        rate, decay = run.config.learning_rate, run.config.weight_decay
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=rate, weight_decay=decay)
        self.balancer = excessmtl.create(run.config.method, tasks=run.learner.tasks, shared=self.model.trunk)
        self.run = run

    def epoch(self, number: int) -> Step:
        """Training on the batches of this epoch, which are ready."""
        shuffled = self.run.data.train.shuffled(self.run.config.seed, number)
        batches = [(prepared(batch, self.run.benchmark), batch.targets) for batch in shuffled]

        def train() -> None:
            for inputs, targets in batches:
                self._step(inputs, targets)

        return train

    # A function of its own, so that the graph of one step is gone before the next is built, as it is in the loop.
    def _step(self, inputs: Inputs, targets: Targets) -> None:
        self.optimiser.zero_grad()
        outputs, loss_of = self.model(inputs), self.run.learner.losses
        self.balancer.backward({task: loss_of[task](outputs[task], target) for task, target in targets.items()})
        self.optimiser.step()


def measured(method: str, rounds: int) -> dict[str, Any]:
    """Milliseconds per step of both, processor time, and quartiles of their ratio."""
    clock = Clock(torch.device("cpu"))
    times: dict[str, list[float]] = {"bare": [], "loop": []}
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        run = Run(RunConfig("multimnist", method, noise=0.8, device="cpu", epochs=rounds), Path(folder) / "run")
        bare, steps = _Bare(run), run.data.train.steps
        # A terminal that nobody sees, drawn in full.
        run.watcher = bar = ProgressBar(Console(file=nowhere, force_terminal=True), rounds, run.primary)
        with bar:
            for number in range(_WARM_UP + rounds):
                epochs: dict[str, Step] = {"bare": bare.epoch(number), "loop": partial(run._epoch, number)}
                for name in sorted(epochs, reverse=number % 2 == 0):
                    times[name].append(1e3 * clock.seconds(epochs[name]) / steps)
        run.folder.close()
        for mine, other in zip(bare.model.parameters(), run.learner.network.parameters(), strict=True):
            assert torch.equal(mine, other), "the two did not do the same"
    bare_ms, loop_ms = times["bare"][_WARM_UP:], times["loop"][_WARM_UP:]
    medians = {"bare_ms": round(median(bare_ms), 3), "loop_ms": round(median(loop_ms), 3)}
    return {"method": method, "progress_bar": True, "rounds": rounds, **medians, "cpu_ratio": ratios(loop_ms, bare_ms)}
