"""Training a benchmark's network with a balancer, on Lightning Fabric: resumable after every epoch, bit for bit."""

import hashlib
import itertools
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.runs import checkpoint
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.folder import RunFolder
from excessmtl.lab.runs.record import RunRecord
from excessmtl.lab.runs.summary import QUANTITIES, Row, Scored, summarise
from excessmtl.lab.schema import Word, checked
from excessmtl.lab.training.batches import Batches, RunData, Share
from excessmtl.lab.training.evaluate import scores, validation_error
from excessmtl.lab.training.learner import Learner, Losses
from excessmtl.lab.training.processes import is_first_process, make_fabric, mean_over_processes
from excessmtl.lab.training.progress import Watcher, event_log
from excessmtl.lab.training.resolve import load_benchmark, resolve


class Run:
    """One training run in its folder.

    `resume`: go on with the run in the folder, if there is one. It may be trained for more epochs than it was started
    with; without a number of epochs in `config`, for as many. `benchmark`: an object to train on; None: the one that
    the configuration names. `wait`: seconds to wait for another process that is still training in the folder.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        resume: bool = False,
        watcher: Watcher | None = None,
        benchmark: Benchmark | None = None,
        wait: float = 0.0,
    ) -> None:
        self.folder = RunFolder(folder)
        self.watcher = watcher or Watcher()
        if resume and config.epochs is None:
            before = self.folder.record
            config = config if before is None else replace(config, epochs=before.config["epochs"])
        self.fabric = make_fabric(config)
        self.benchmark = load_benchmark(config) if benchmark is None else benchmark
        self.config = resolve(config, self.benchmark, self.fabric.device, by_name=benchmark is None)
        self.learner = Learner(self.config, self.benchmark, self.fabric)
        self.data = RunData(self.config, self.benchmark, self.learner.holds_out)
        self.record = RunRecord.of(self.config, self.benchmark, self.learner.balancer, by_name=benchmark is None)
        if is_first_process():
            self.record = self.folder.open(self.record, resume, wait)
        # Only now: a mistake is found before other processes are started.
        self.fabric.launch()
        self.share = Share(self.fabric.global_rank, self.fabric.world_size)
        self.data.move(self.fabric.device, self.share)
        self.learner.move(self.data.incomplete)
        self.rows: list[Row] = []
        self.history: dict[str, list[np.ndarray]] = {name: [] for name in QUANTITIES}
        self.seconds = 0.0

    def execute(self) -> dict[str, Any]:
        """Train what is left to train; the summary."""
        try:
            summary = self.folder.summary
            return summary if summary and summary["epochs"] >= self.config.epochs else self._train()
        finally:
            self.folder.close()

    def _train(self) -> dict[str, Any]:
        self._restore()
        # The fastest convolutions on CUDA add up in an order that changes from run to run.
        exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
        first = self.fabric.is_global_zero
        events = event_log(self.folder.path / "tensorboard", self.rows) if first else nullcontext(lambda row: None)
        with exact, events as log:
            for epoch in range(len(self.rows), self.config.epochs):
                self._epoch(epoch)
                row: Row = {"epoch": epoch, **self._train_means(), **self._evaluate()}
                self.rows.append(row)
                self._save(epoch)
                log(row)
                self.watcher.on_epoch(epoch, row)
        weights = None if self.learner.balancer is None else self.history["weights"][-1]
        steps = sum(len(part) for part in self.history["losses"])
        scored = {
            task.name: Scored(metric.name, metric.higher_is_better, metric.unit)
            for task in self.benchmark.tasks
            for metric in [task.kind.primary]
        }
        errors = [validation_error(row, self.benchmark.tasks) for row in self.rows]
        seconds = self.seconds / max(steps, 1)
        summary = summarise(self.record, scored, self.rows, weights, seconds, validation_errors=errors)
        if first:
            self.folder.write_summary(summary)
        return summary

    def _epoch(self, epoch: int) -> None:
        batches = self.data.of_epoch(epoch)
        self.learner.network.train()
        if self.share.rank:
            # Dropout differs between processes; the first one goes on with the stream of the run.
            torch.manual_seed(_seed("process", self.config.seed, self.share.rank, epoch))
        steps = min(batches.steps, self.config.limit_batches or batches.steps)
        start = time.perf_counter()
        log = self._steps(batches, epoch, steps)
        balancer = self.learner.balancer
        if balancer is not None:
            balancer.end_epoch()
            log[:, QUANTITIES.index("weights")] /= balancer.factor  # tables and plots show weights before it
        for name, part in zip(QUANTITIES, mean_over_processes(log).unbind(1), strict=True):
            self.history[name].append(part.cpu().numpy())
        self.seconds += time.perf_counter() - start

    def _steps(self, batches: Batches, epoch: int, steps: int) -> Tensor:
        """Train an epoch; its log [steps, 3, m]."""
        key = ("augment", self.config.seed, epoch, *([self.share.rank] if self.share.rank else []))
        generator = Generator().manual_seed(_seed(*key))
        clean = self.data.held_out
        held_out = None if clean is None else self._held_out_losses(clean, epoch)
        lines = []
        for index, batch in enumerate(batches.shuffled(self.config.seed, epoch, steps)):
            self.learner.set_learning_rate(epoch * steps + index, self.config.epochs * steps)
            result = self.learner.step(batch, generator, held_out)
            lines.append(result.numbers[: len(QUANTITIES)])
            self.watcher.on_step(epoch, index, steps, result)
        return torch.stack(lines)

    def _held_out_losses(self, batches: Batches, epoch: int) -> Iterator[Losses]:
        """For rules that look at clean validation data: its losses, batch after batch, without end."""
        for number in itertools.count():
            for batch in batches.shuffled(_seed("validation", self.config.seed, epoch), number):
                yield self.learner.losses_of(batch)

    def _train_means(self) -> Row:
        parts = {"losses": "loss"} if self.learner.balancer is None else {"losses": "loss", "weights": "weight"}
        row: Row = {}
        for part, name in parts.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a task without any label in the epoch has no mean
                means = np.nanmean(self.history[part][-1], axis=0)
            row |= {f"train/{task}/{name}": float(mean) for task, mean in zip(self.learner.tasks, means, strict=True)}
        return row

    def _evaluate(self) -> Row:
        self.learner.network.eval()
        row: Row = {}
        for name, batches in self.data.evaluated.items():
            result = scores(self.learner.predict, self.benchmark, batches, self.config.limit_batches)
            row |= {f"{name}/{key}": value for key, value in result.items()}
        return row

    def _save(self, epoch: int) -> None:
        state = {
            "epoch": epoch,
            **self.learner.state_dict(),
            "rows": self.rows,
            "history": {name: [torch.from_numpy(part) for part in parts] for name, parts in self.history.items()},
            "seconds": self.seconds,
        }
        if self.fabric.is_global_zero:
            checkpoint.save(self.folder.checkpoints, state, epoch)
            self._write_tables()
        self.fabric.barrier()

    def _write_tables(self) -> None:
        self.folder.write_metrics(self.rows)
        steps = {name: np.concatenate(parts) for name, parts in self.history.items()}
        self.folder.write_steps(steps, self.learner.tasks)

    def _restore(self) -> None:
        state = checkpoint.load(self.folder.checkpoints)
        if state is None:
            return
        with checkpoint.restoring(self.folder.checkpoints):
            checked(list[dict[Word, float]], state["rows"], "rows")
            self.rows = state["rows"]
            self.history = {name: [part.numpy() for part in state["history"][name]] for name in QUANTITIES}
            self.seconds = float(state["seconds"])
            self.learner.load_state_dict(state)
        if self.fabric.is_global_zero:  # the run may have been killed after its checkpoint and before its tables
            self._write_tables()


def train(
    config: RunConfig, out: Path, resume: bool = False, watcher: Watcher | None = None, wait: float = 0.0
) -> dict[str, Any]:
    """Run (or go on with) one training run in folder `out`; its summary. `Run` says what the arguments mean."""
    return Run(config, out, resume, watcher, wait=wait).execute()


def _seed(*key: object) -> int:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:4], "big")
