"""Training a benchmark's network with a balancer, on Lightning Fabric: resumable after every epoch, bit for bit."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from excessmtl.balancer import Balancer
from excessmtl.benchmarks.base import Benchmark, Split
from excessmtl.benchmarks.noise import Noise
from excessmtl.benchmarks.noise import apply as with_noise
from excessmtl.benchmarks.tasks import labelled
from excessmtl.step import Step
from excessmtl.training import checkpoint
from excessmtl.training.balancers import make_balancer
from excessmtl.training.batches import Batch, Batches, Inputs, Share, TensorBatches, make_batches, prepared
from excessmtl.training.config import SINGLE, RunConfig
from excessmtl.training.evaluate import scores
from excessmtl.training.held_out import split_off
from excessmtl.training.model import MultiTaskModel, SingleTaskModels
from excessmtl.training.optimisation import learning_rate, make_optimiser
from excessmtl.training.processes import (
    is_first_process,
    load_state,
    make_fabric,
    mean_over_processes,
    parallel,
    state_of,
)
from excessmtl.training.progress import Silent, Watcher
from excessmtl.training.replay import LOGGED, ReplayedEpochs
from excessmtl.training.resolve import complete_options, load_benchmark, resolve
from excessmtl.training.run_folder import Row, RunFolder
from excessmtl.training.summary import summarise
from excessmtl.training.tensorboard import event_log

_CLEAN_SHARE = 0.2
_EVALUATED_AT_ONCE = 4
"""Batches; without gradients there is room for them."""

Losses = dict[str, Tensor]
Masks = dict[str, Tensor]


class Run:
    """One training run in its folder.

    Args:
        config: what to train.
        folder: where everything about the run is written.
        resume: go on with the run in the folder, if there is one.
        watcher: told about every step and epoch.
        benchmark: an object to train on; None: the one that the configuration names.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        resume: bool = False,
        watcher: Watcher | None = None,
        benchmark: Benchmark | None = None,
    ) -> None:
        self.folder = RunFolder(folder)
        self.watcher: Watcher = watcher or Silent()
        self.fabric = make_fabric(config)
        self.benchmark = load_benchmark(config) if benchmark is None else benchmark
        self.config = resolve(config, self.benchmark, self.fabric.device, by_name=benchmark is None)
        torch.manual_seed(self.config.seed)
        single = self.config.method == SINGLE
        self.network = SingleTaskModels(self.benchmark) if single else MultiTaskModel(self.benchmark)
        self.tasks = tuple(task.name for task in self.benchmark.tasks)
        self.balancer: Balancer | None = self._balancer()
        self.clean, held_out = self._divided_data()
        first = self._noisy(0)
        if is_first_process():
            options = {} if self.balancer is None else complete_options(self.balancer)
            self.folder.open(self.config, {"source": self.benchmark.source, "method_options": options}, resume)
        # Only now: a mistake is found before other processes are started.
        self.fabric.launch()
        self._build(first, held_out)

    def _build(self, train: Split, held_out: Split | None) -> None:
        device, rank = self.fabric.device, self.fabric.global_rank
        self.divided = self.fabric.world_size > 1 and self.config.strategy == "fsdp"
        self.network.to(device)
        self.module = parallel(self.network, self.config.strategy, self.fabric)
        optimiser = make_optimiser(self.config, self.network.parameters(), device)
        made = self.fabric.setup_optimizers(optimiser)
        assert not isinstance(made, tuple)  # of one, one is made
        self.optimiser = made
        self.losses = {task.name: task.kind.loss for task in self.benchmark.tasks}
        self.share = Share(rank, self.fabric.world_size)
        self.held_out = None if held_out is None else self._batches(held_out)
        self.train = self._batches(train)
        self.incomplete = self.train.incomplete | (self.held_out.incomplete if self.held_out else frozenset())
        self.evaluated = {
            name: make_batches(split, _EVALUATED_AT_ONCE * self.config.batch_size, device, None, self.benchmark.workers)
            for name, split in (("validation", self.benchmark.validation), ("test", self.benchmark.test))
            if all(split.length(task) for task in self.tasks)
        }
        self.replay = self._replay()
        self.rows: list[Row] = []
        self.history: dict[str, list[np.ndarray]] = {name: [] for name in LOGGED}
        self.seconds = 0.0

    def _divided_data(self) -> tuple[Split, Split | None]:
        """Clean data to train on, and what is held out of it for methods that look at validation losses."""
        if self.balancer is None or "validation_losses" not in self.balancer.rule.uses:
            return self.benchmark.train, None
        if self.config.devices > 1:  # its products of gradients are not those of the whole batch
            raise ValueError(f"devices must be 1 for {self.config.method!r}, found {self.config.devices}")
        # The paper gives MOML a fifth of the training data, clean; noise goes into the rest.
        return split_off(self.benchmark.train, _CLEAN_SHARE, self.config.seed)

    def _batches(self, split: Split) -> Batches:
        return make_batches(split, self.config.batch_size, self.fabric.device, self.share, self.benchmark.workers)

    def _balancer(self) -> Balancer | None:
        if not isinstance(self.network, MultiTaskModel):
            return None
        options = dict(self.config.options)
        balancer = make_balancer(self.config.method, self.tasks, self.network.trunk, options)
        if balancer.rule.sums_to_one and "scale" not in options:
            # Some methods sum to one, others to m. Weight decay would favour the latter: all get the same total here.
            balancer.scale = float(len(self.tasks))
        return balancer

    def _replay(self) -> ReplayedEpochs | None:
        if not self._replayable or not isinstance(self.train, TensorBatches):
            return None
        return ReplayedEpochs(self._plain_step, self.train, self.balancer)

    @property
    def _replayable(self) -> bool:
        """Whether every step of this run is the same kernels on the same places in memory."""
        on_device = self.benchmark.augment is None and self.held_out is None and self._scaler is None
        on_device = on_device and not self.incomplete and self.share.processes == 1
        same_rate = self.config.schedule == "constant" and not self.config.warmup_steps
        rule = self.balancer is None or (self.balancer.rule.replayable and self.balancer.every == 1)
        wanted = self.config.replay and not self.config.redraw_each_epoch
        return self.fabric.device.type == "cuda" and wanted and on_device and same_rate and rule

    @property
    def primary(self) -> dict[str, str]:
        """Task -> the metric that stands for it."""
        return {task.name: task.kind.score for task in self.benchmark.tasks}

    def _noisy(self, epoch: int) -> Split:
        config = self.config
        noise = Noise(
            config.noise,
            config.noisy_tasks,
            config.noise_seed,
            config.exclude_true,
            config.redraw_each_epoch,
        )
        return with_noise(self.clean, self.benchmark.tasks, noise, epoch)

    def execute(self) -> dict[str, Any]:
        """Train what is left to train; the summary."""
        try:
            return self.folder.summary or self._train()
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
        weights = self.history["weights"][-1] if self.balancer is not None else None
        steps = sum(len(part) for part in self.history["losses"])
        summary = summarise(self.config, self.benchmark, self.rows, weights, self.seconds / max(steps, 1))
        if first:
            self.folder.write_summary(summary)
        return summary

    # ------------------------------------------------------------------ one epoch

    def _epoch(self, epoch: int) -> None:
        if self.config.redraw_each_epoch:
            self.train = self._batches(self._noisy(epoch))
        self.network.train()
        if self.share.rank:
            # Dropout differs between processes; the first one goes on with the stream of the run.
            torch.manual_seed(_seed("process", self.config.seed, self.share.rank, epoch))
        limit = self.config.limit_batches
        steps = self.train.steps if limit is None else min(limit, self.train.steps)
        start = time.perf_counter()
        log = self._stepwise(epoch, steps) if self.replay is None else self._replayed(self.replay, epoch, steps)
        if self.balancer is not None:
            self.balancer.end_epoch()
        if self.balancer is not None:
            log[:, LOGGED.index("weights")] /= self.balancer.scale  # tables and plots show weights before it
        log = mean_over_processes(log)
        for name, part in zip(LOGGED, log.unbind(1), strict=True):
            self.history[name].append(part.cpu().numpy())
        self.seconds += time.perf_counter() - start

    def _stepwise(self, epoch: int, steps: int) -> Tensor:
        """Train an epoch; its log [steps, 3, m]."""
        key = ("augment", self.config.seed, epoch, *([self.share.rank] if self.share.rank else []))
        generator = Generator().manual_seed(_seed(*key))
        held_out = self._held_out_losses(epoch)
        lines = []
        for index, batch in enumerate(self.train.shuffled(self.config.seed, epoch, steps)):
            self._set_learning_rate(epoch * steps + index, self.config.epochs * steps)
            result = self.step(batch, generator, held_out)
            lines.append(result.numbers[: len(LOGGED)])
            self.watcher.on_step(epoch, index, steps, result)
        return torch.stack(lines)

    def _replayed(self, replay: ReplayedEpochs, epoch: int, steps: int) -> Tensor:
        """The same from a recorded step."""
        orders = replay.batches.orders(self.config.seed, epoch, steps)
        for index, result in enumerate(replay.epoch(orders)):
            self.watcher.on_step(epoch, index, steps, result)
        return replay.log.clone()

    def _plain_step(self, batch: Batch) -> Step:
        return self.step(batch, Generator())

    def step(self, batch: Batch, generator: Generator, held_out: Iterator[Losses] | None = None) -> Step:
        """One step of the optimiser on one batch."""
        inputs, targets = prepared(batch, self.benchmark), batch.targets
        if self.benchmark.augment is not None:
            inputs, targets = self.benchmark.augment(inputs, targets, generator)
        self.optimiser.zero_grad()
        losses, masks = self._losses(self._outputs(inputs), targets)
        if not losses:  # no label for any task
            nan = torch.full((len(self.tasks),), torch.nan, device=self.fabric.device)
            return Step.of(self.tasks, nan, nan, nan, torch.zeros_like(nan))
        if self.balancer is None:
            result = self._alone(losses)
        else:
            ahead = None if held_out is None else partial(next, held_out)
            result = self.balancer.backward(losses, mask=masks, scaler=self._scaler, validation_losses=ahead)
        self.optimiser.step()
        return result

    def _set_learning_rate(self, step: int, steps: int) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.config, step, steps)

    def _alone(self, losses: Losses) -> Step:
        """Networks without a common parameter: the gradient of the sum is each one's own."""
        self.fabric.backward(torch.stack(list(losses.values())).sum())
        nan = torch.full((len(self.tasks),), torch.nan, device=self.fabric.device)
        values = torch.stack([losses[task].detach().float() if task in losses else nan[0] for task in self.tasks])
        return Step.of(self.tasks, nan, values, nan, torch.zeros_like(values))

    def _outputs(self, inputs: Inputs) -> Mapping[str, Tensor]:
        """Of the network in training."""
        with self.fabric.autocast():
            outputs = self.module(inputs)
        return {task: output.float() for task, output in outputs.items()}

    def _predict(self, inputs: Inputs) -> Mapping[str, Tensor]:
        """Of the network in evaluation, which every process does alike."""
        with self.fabric.autocast():
            outputs = self.network(inputs)
        return {task: output.float() for task, output in outputs.items()}

    def _losses(self, outputs: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> tuple[Losses, Masks]:
        """The losses of all tasks with labels in this batch, and which examples have one where some do not."""
        losses, masks = {}, {}
        for task, target in targets.items():
            output, present = outputs[task], labelled(target) if task in self.incomplete else None
            if present is None:
                losses[task] = self.losses[task](output, target)
            elif present.any():
                losses[task], masks[task] = self.losses[task](output[present], target[present]), present
            elif self.share.processes > 1:
                # Every process has to send a gradient through the same heads, or the others wait for it.
                losses[task], masks[task] = 0 * output.sum(), present
        return losses, masks

    def _held_out_losses(self, epoch: int) -> Iterator[Losses] | None:
        """For rules that look at clean validation data: its losses, batch after batch, without end."""
        batches = self.held_out
        if batches is None:
            return None

        def endless() -> Iterator[Losses]:
            number = 0
            while True:
                for batch in batches.shuffled(_seed("validation", self.config.seed, epoch), number):
                    outputs = self._predict(prepared(batch, self.benchmark))
                    yield self._losses(outputs, batch.targets)[0]
                number += 1

        return endless()

    def _train_means(self) -> Row:
        parts = ["losses"] if self.balancer is None else ["losses", "weights"]
        row: Row = {}
        for part, name in zip(parts, ("loss", "weight"), strict=False):
            means = _mean_of_known(self.history[part][-1])
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
            **state_of(self.network, self.optimiser.optimizer, self.divided),
            "balancer": None if self.balancer is None else self.balancer.state_dict(),
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state() if self.fabric.device.type == "cuda" else None,
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
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
        self.folder.write_steps(steps, self.tasks)

    def _restore(self) -> None:
        state = checkpoint.load(self.folder.checkpoints)
        if state is None:
            return
        load_state(self.network, self.optimiser.optimizer, state, self.divided)
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
        if self.fabric.is_global_zero:  # the run may have been killed after its checkpoint and before its tables
            self._write_tables()


def train(config: RunConfig, out: Path, resume: bool = False, watcher: Watcher | None = None) -> dict[str, Any]:
    """Run (or go on with) one training run in folder `out`; its summary."""
    return Run(config, out, resume, watcher).execute()


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    """The mean over steps of what is not NaN; a task without any label in the epoch has none."""
    known = ~np.isnan(values)
    counts = known.sum(0)
    if known.all():
        means: np.ndarray = values.mean(0)
        return means
    total = np.where(known, values, 0).sum(0)
    found: np.ndarray = np.divide(total, counts, out=np.full_like(total, np.nan), where=counts > 0)
    return found


def _seed(*key: object) -> int:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:4], "big")
