"""Training a benchmark's network with a balancer, on Lightning Fabric: resumable after every epoch, bit for bit."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from excessmtl.balancer import Balancer
from excessmtl.benchmarks.base import Split
from excessmtl.benchmarks.noise import Noise
from excessmtl.benchmarks.noise import apply as with_noise
from excessmtl.create import create
from excessmtl.step import Step
from excessmtl.training import checkpoint
from excessmtl.training.batches import Batch, Batches, Inputs, prepared, split_off
from excessmtl.training.config import SINGLE, RunConfig
from excessmtl.training.evaluate import scores
from excessmtl.training.model import MultiTaskModel, SingleTaskModels
from excessmtl.training.progress import Silent, Watcher
from excessmtl.training.replay import LOGGED, ReplayedEpochs
from excessmtl.training.resolve import complete_options, load_benchmark, make_fabric, resolve
from excessmtl.training.run_folder import Row, RunFolder
from excessmtl.training.summary import summarise
from excessmtl.training.tensorboard import event_log

_CLEAN_SHARE = 0.2
_EVALUATED_AT_ONCE = 4
"""Batches; without gradients there is room for them."""

Losses = dict[str, Tensor]


class Run:
    """One training run in its folder."""

    def __init__(self, config: RunConfig, folder: Path, resume: bool = False, watcher: Watcher | None = None) -> None:
        self.folder = RunFolder(folder)
        self.watcher: Watcher = watcher or Silent()
        self.fabric = make_fabric(config)
        self.benchmark = load_benchmark(config)
        self.config = resolve(config, self.benchmark, self.fabric.device)
        torch.manual_seed(self.config.seed)
        self._build()
        options = {} if self.balancer is None else complete_options(self.balancer)
        self.folder.open(self.config, {"source": self.benchmark.source, "method_options": options}, resume)

    def _build(self) -> None:
        single = self.config.method == SINGLE
        self.network = SingleTaskModels(self.benchmark) if single else MultiTaskModel(self.benchmark)
        rate, decay = self.config.learning_rate, self.config.weight_decay
        on_cuda = self.fabric.device.type == "cuda"  # there Adam counts its steps on the device, and in one kernel
        optimiser = torch.optim.Adam(
            self.network.parameters(), lr=rate or 0.0, weight_decay=decay or 0.0, fused=on_cuda, capturable=on_cuda
        )
        # The wrapped network is not used: in mixed precision it refuses any backward but Fabric's own single one.
        _, self.optimiser = self.fabric.setup(self.network, optimiser)
        self.tasks = tuple(task.name for task in self.benchmark.tasks)
        self.losses = {task.name: task.kind.loss for task in self.benchmark.tasks}
        self.balancer: Balancer | None = self._balancer()
        device, size = self.fabric.device, self.config.batch_size or 1
        self.clean, self.held_out = self.benchmark.train, None
        if self.balancer is not None and "validation_losses" in self.balancer.rule.uses:
            # The paper gives MOML a fifth of the training data, clean; noise goes into the rest.
            self.clean, held_out = split_off(self.clean, _CLEAN_SHARE, self.config.seed)
            self.held_out = Batches(held_out, size, device)
        self.train = Batches(self._noisy(0), size, device)
        self.evaluated = {
            name: Batches(split, _EVALUATED_AT_ONCE * size, device)
            for name, split in (("validation", self.benchmark.validation), ("test", self.benchmark.test))
            if all(split.length(task) for task in self.tasks)
        }
        self.replay = ReplayedEpochs(self._plain_step, self.train, self.balancer) if self._replayable else None
        self.rows: list[Row] = []
        self.history: dict[str, list[np.ndarray]] = {name: [] for name in LOGGED}
        self.seconds = 0.0

    def _balancer(self) -> Balancer | None:
        if not isinstance(self.network, MultiTaskModel):
            return None
        options = dict(self.config.options)
        try:
            balancer = create(self.config.method, tasks=self.tasks, shared=self.network.trunk, **options)
        except TypeError as error:
            raise ValueError(f"options {options} do not fit method {self.config.method!r}: {error}") from error
        if balancer.rule.sums_to_one and "scale" not in options:
            # Some methods sum to one, others to m. Weight decay would favour the latter: all get the same total here.
            balancer.scale = float(len(self.tasks))
        return balancer

    @property
    def _replayable(self) -> bool:
        """Whether every step of this run is the same kernels on the same places in memory."""
        on_device = self.benchmark.augment is None and self.held_out is None and self._scaler is None
        rule = self.balancer is None or (self.balancer.rule.replayable and self.balancer.every == 1)
        wanted = self.config.replay and not self.config.redraw_each_epoch
        return self.fabric.device.type == "cuda" and wanted and on_device and rule

    @property
    def primary(self) -> dict[str, str]:
        """Task -> the metric that stands for it."""
        return {task.name: task.kind.score for task in self.benchmark.tasks}

    def _noisy(self, epoch: int) -> Split:
        config = self.config
        noise = Noise(
            config.noise,
            config.noisy_tasks or (),
            config.noise_seed or 0,
            config.exclude_true,
            config.redraw_each_epoch,
        )
        return with_noise(self.clean, self.benchmark.tasks, noise, epoch)

    def execute(self) -> dict[str, Any]:
        """Train what is left to train; the summary."""
        summary = self.folder.summary
        if summary is not None:
            return summary
        self._restore()
        # The fastest convolutions on CUDA add up in an order that changes from run to run.
        exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
        with exact, event_log(self.folder.path / "tensorboard", self.rows) as log:
            for epoch in range(len(self.rows), self.config.epochs or 0):
                self._epoch(epoch)
                row: Row = {"epoch": epoch, **self._train_means(), **self._evaluate()}
                self.rows.append(row)
                self._save(epoch)
                log(row)
                self.watcher.on_epoch(epoch, row)
        weights = self.history["weights"][-1] if self.balancer is not None else None
        steps = sum(len(part) for part in self.history["losses"])
        summary = summarise(self.config, self.benchmark, self.rows, weights, self.seconds / max(steps, 1))
        self.folder.write_summary(summary)
        return summary

    # ------------------------------------------------------------------ one epoch

    def _epoch(self, epoch: int) -> None:
        if self.config.redraw_each_epoch:
            self.train = Batches(self._noisy(epoch), self.config.batch_size or 1, self.fabric.device)
        self.network.train()
        limit = self.config.limit_batches
        steps = self.train.steps if limit is None else min(limit, self.train.steps)
        start = time.perf_counter()
        log = self._stepwise(epoch, steps) if self.replay is None else self._replayed(self.replay, epoch, steps)
        if self.balancer is not None:
            self.balancer.end_epoch()
        if self.balancer is not None:
            log[:, LOGGED.index("weights")] /= self.balancer.scale  # tables and plots show weights before it
        for name, part in zip(LOGGED, log.unbind(1), strict=True):
            self.history[name].append(part.cpu().numpy())
        self.seconds += time.perf_counter() - start

    def _stepwise(self, epoch: int, steps: int) -> Tensor:
        """Train an epoch; its log [steps, 3, m]."""
        generator = Generator().manual_seed(_seed("augment", self.config.seed, epoch))
        held_out = self._held_out_losses(epoch)
        lines = []
        for index, batch in enumerate(self.train.shuffled(self.config.seed, epoch, steps)):
            result = self.step(batch, generator, held_out)
            lines.append(result.numbers[: len(LOGGED)])
            self.watcher.on_step(epoch, index, steps, result)
        return torch.stack(lines)

    def _replayed(self, replay: ReplayedEpochs, epoch: int, steps: int) -> Tensor:
        """The same from a recorded step."""
        orders = self.train.orders(self.config.seed, epoch, steps)
        for index, result in enumerate(replay.epoch(orders)):
            self.watcher.on_step(epoch, index, steps, result)
        return replay.log.clone()

    def _plain_step(self, batch: Batch) -> Step:
        return self.step(batch, Generator())

    def step(self, batch: Batch, generator: Generator, held_out: Iterator[Losses] | None = None) -> Step:
        """One step of the optimiser on one batch."""
        inputs, targets = prepared(batch, self.benchmark), batch.targets
        if self.benchmark.augment is not None and isinstance(inputs, Tensor):
            inputs, targets = self.benchmark.augment(inputs, targets, generator)
        self.optimiser.zero_grad()
        losses = self._losses(inputs, targets)
        if self.balancer is None:
            result = self._alone(losses)
        else:
            ahead = None if held_out is None else partial(next, held_out)
            result = self.balancer.backward(losses, scaler=self._scaler, validation_losses=ahead)
        self.optimiser.step()
        return result

    def _alone(self, losses: Losses) -> Step:
        """Networks without a common parameter: the gradient of the sum is each one's own."""
        self.fabric.backward(torch.stack(list(losses.values())).sum())
        values = torch.stack([loss.detach() for loss in losses.values()])
        nan = torch.full_like(values, torch.nan)
        return Step.of(self.tasks, nan, values.float(), nan, torch.zeros_like(values))

    def _predict(self, inputs: Inputs) -> Mapping[str, Tensor]:
        with self.fabric.autocast():
            outputs = self.network(inputs)
        return {task: output.float() for task, output in outputs.items()}

    def _losses(self, inputs: Inputs, targets: Mapping[str, Tensor]) -> Losses:
        outputs = self._predict(inputs)
        return {task: self.losses[task](outputs[task], target) for task, target in targets.items()}

    def _held_out_losses(self, epoch: int) -> Iterator[Losses] | None:
        """For rules that look at clean validation data: its losses, batch after batch, without end."""
        batches = self.held_out
        if batches is None:
            return None

        def endless() -> Iterator[Losses]:
            number = 0
            while True:
                for batch in batches.shuffled(_seed("validation", self.config.seed, epoch), number):
                    yield self._losses(prepared(batch, self.benchmark), batch.targets)
                number += 1

        return endless()

    def _train_means(self) -> Row:
        parts = ["losses"] if self.balancer is None else ["losses", "weights"]
        row: Row = {}
        for part, name in zip(parts, ("loss", "weight"), strict=False):
            means = self.history[part][-1].mean(0)
            row |= {f"train/{task}/{name}": float(mean) for task, mean in zip(self.tasks, means, strict=True)}
        return row

    def _evaluate(self) -> Row:
        self.network.eval()
        row: Row = {}
        for name, batches in self.evaluated.items():
            found = scores(self._predict, self.benchmark, batches, self.config.limit_batches)
            row |= {f"{name}/{key}": value for key, value in found.items()}
        return row

    # ------------------------------------------------------------------ survival

    @property
    def _scaler(self) -> Any:
        """The gradient scaler of 16-bit precision, or None."""
        return getattr(self.fabric.strategy.precision, "scaler", None)

    def _save(self, epoch: int) -> None:
        state = {
            "epoch": epoch,
            "model": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "balancer": None if self.balancer is None else self.balancer.state_dict(),
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state() if self.fabric.device.type == "cuda" else None,
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
            "rows": self.rows,
            "history": {name: [torch.from_numpy(part) for part in parts] for name, parts in self.history.items()},
            "seconds": self.seconds,
        }
        checkpoint.save(self.folder.checkpoints, state, epoch)
        self._write_tables()

    def _write_tables(self) -> None:
        self.folder.write_metrics(self.rows)
        steps = {name: np.concatenate(parts) for name, parts in self.history.items()}
        self.folder.write_steps(steps, self.tasks)

    def _restore(self) -> None:
        state = checkpoint.load(self.folder.checkpoints)
        if state is None:
            return
        self.network.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.balancer is not None:
            self.balancer.load_state_dict(state["balancer"])
        if state["scaler"] is not None and self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["random"])
        if state["cuda_random"] is not None and self.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_random"])
        self.rows = state["rows"]
        self.history = {name: [part.numpy() for part in parts] for name, parts in state["history"].items()}
        self.seconds = state["seconds"]
        # The run may have been killed after its checkpoint and before its tables.
        self._write_tables()


def train(config: RunConfig, out: Path, resume: bool = False, watcher: Watcher | None = None) -> dict[str, Any]:
    """Run (or go on with) one training run in folder `out`; its summary."""
    return Run(config, out, resume, watcher).execute()


def _seed(*key: object) -> int:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:4], "big")
