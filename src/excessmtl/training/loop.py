"""Training a benchmark's network with a balancer, on Lightning Fabric: resumable after every epoch, bit for bit."""

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Generator, Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from excessmtl.balancer import Balancer
from excessmtl.benchmarks import registry
from excessmtl.benchmarks.base import Benchmark
from excessmtl.benchmarks.losses import loss_of
from excessmtl.benchmarks.metrics import metrics_of, primary_of
from excessmtl.benchmarks.noise import Noise
from excessmtl.benchmarks.noise import apply as with_noise
from excessmtl.create import create
from excessmtl.step import Step
from excessmtl.training import checkpoint
from excessmtl.training.batches import Batch, Batches, prepared, split_off
from excessmtl.training.config import SINGLE, RunConfig
from excessmtl.training.model import MultiTaskModel, SingleTaskModels
from excessmtl.training.presets import method_options
from excessmtl.training.progress import Silent, Watcher
from excessmtl.training.run_folder import Row, RunFolder
from excessmtl.training.summary import summarise

_LOGGED = ("weights", "losses", "excess_risks")


def load_benchmark(config: RunConfig) -> Benchmark:
    """The benchmark of a configuration, with clean labels."""
    entry = registry()[config.benchmark]
    data = None if config.data is None else Path(config.data)
    try:
        return entry.load(data, config.seed, **config.benchmark_options)
    except TypeError as error:
        raise ValueError(
            f"benchmark_options {dict(config.benchmark_options)} do not fit {config.benchmark!r}: {error}"
        ) from error


def resolve(config: RunConfig, benchmark: Benchmark) -> RunConfig:
    """The configuration with every None replaced by what the benchmark says."""
    recipe = benchmark.recipe
    noisy = benchmark.noisy_tasks if config.noisy_tasks is None else config.noisy_tasks
    names = [task.name for task in benchmark.tasks]
    unknown = [name for name in noisy if name not in names]
    if unknown:
        raise ValueError(f"noisy_tasks names unknown task {unknown[0]!r}; the tasks are {names}")
    epochs = recipe.epochs if config.epochs is None else config.epochs
    batch_size = recipe.batch_size if config.batch_size is None else config.batch_size
    resolved = replace(
        config,
        noisy_tasks=tuple(noisy),
        noise_seed=config.seed if config.noise_seed is None else config.noise_seed,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=recipe.learning_rate if config.learning_rate is None else config.learning_rate,
        weight_decay=recipe.weight_decay if config.weight_decay is None else config.weight_decay,
    )
    return replace(resolved, options=method_options(resolved, benchmark))


class Run:
    """One training run in its folder."""

    def __init__(self, config: RunConfig, folder: Path, resume: bool = False, watcher: Watcher | None = None) -> None:
        self.folder = RunFolder(folder)
        self.watcher: Watcher = watcher or Silent()
        self.benchmark = load_benchmark(config)
        self.config = resolve(config, self.benchmark)
        self.fabric = Fabric(accelerator=config.device, devices=1, precision=config.precision)  # type: ignore[arg-type]
        torch.manual_seed(self.config.seed)
        self._build()
        self.folder.open(self.config, resume)

    def _build(self) -> None:
        single = self.config.method == SINGLE
        network = SingleTaskModels(self.benchmark) if single else MultiTaskModel(self.benchmark)
        rate, decay = self.config.learning_rate, self.config.weight_decay
        optimiser = torch.optim.Adam(network.parameters(), lr=rate or 0.0, weight_decay=decay or 0.0)
        self.model, self.optimiser = self.fabric.setup(network, optimiser)
        self.tasks = tuple(task.name for task in self.benchmark.tasks)
        self.losses = {task.name: loss_of(task.kind) for task in self.benchmark.tasks}
        self.balancer: Balancer | None = None
        if isinstance(network, MultiTaskModel):
            options = dict(self.config.options)
            self.balancer = create(self.config.method, tasks=self.tasks, shared=network.trunk, **options)
        device, size = self.fabric.device, self.config.batch_size or 1
        self.clean, self.validation = self.benchmark.train, None
        if self.balancer is not None and "validation_losses" in self.balancer.rule.uses:
            # The paper gives MOML a fifth of the training data, clean; noise goes into the rest.
            self.clean, held_out = split_off(self.clean, 0.2, self.config.seed)
            self.validation = Batches(held_out, size, device)
        self.train = Batches(self._noisy(0), size, device)
        self.evaluated = {
            name: Batches(split, size, device)
            for name, split in (("validation", self.benchmark.validation), ("test", self.benchmark.test))
            if all(split.length(task) for task in self.tasks)
        }
        self.rows: list[Row] = []
        self.history: dict[str, list[np.ndarray]] = {name: [] for name in _LOGGED}
        self.seconds = 0.0

    @property
    def primary(self) -> dict[str, str]:
        """Task -> the metric that stands for it."""
        return {task.name: primary_of(task.kind)[0] for task in self.benchmark.tasks}

    def _noisy(self, epoch: int) -> Any:
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
        logger = SummaryWriter(str(self.folder.path / "tensorboard"), purge_step=len(self.rows))
        try:
            for epoch in range(len(self.rows), self.config.epochs or 0):
                self._epoch(epoch)
                row: Row = {"epoch": epoch, **self._train_means(), **self._evaluate()}
                self.rows.append(row)
                self._save(epoch)
                for name, value in row.items():
                    logger.add_scalar(name, value, epoch)
                self.watcher.on_epoch(epoch, row)
        finally:
            logger.close()
        weights = self.history["weights"][-1] if self.balancer is not None else None
        steps = sum(len(part) for part in self.history["losses"])
        summary = summarise(self.config, self.benchmark, self.rows, weights, self.seconds / max(steps, 1))
        self.folder.write_summary(summary)
        return summary

    # ------------------------------------------------------------------ one epoch

    def _epoch(self, epoch: int) -> None:
        if self.config.redraw_each_epoch:
            self.train = Batches(self._noisy(epoch), self.config.batch_size or 1, self.fabric.device)
        self.model.train()
        limit = self.config.limit_batches
        steps = self.train.steps if limit is None else min(limit, self.train.steps)
        generator = Generator().manual_seed(_seed("augment", self.config.seed, epoch))
        validation = self._validation_batches(epoch)
        results = []
        start = time.perf_counter()
        for index, batch in enumerate(self.train.shuffled(self.config.seed, epoch, limit)):
            result = self._step(batch, generator, validation)
            results.append(result)
            self.watcher.on_step(epoch, index, steps, result)
        if self.balancer is not None:
            self.balancer.end_epoch()
        for name in _LOGGED:
            self.history[name].append(torch.stack([getattr(result, name) for result in results]).cpu().numpy())
        self.seconds += time.perf_counter() - start

    def _step(self, batch: Batch, generator: Generator, validation: Any) -> Step:
        inputs, targets = prepared(batch, self.benchmark), batch.targets
        if self.benchmark.augment is not None and isinstance(inputs, Tensor):
            inputs, targets = self.benchmark.augment(inputs, targets, generator)
        self.optimiser.zero_grad()
        losses = self._losses(inputs, targets)
        scaler = self._scaler()
        if self.balancer is None:
            self.fabric.backward(torch.stack(list(losses.values())).sum())
            values = torch.stack([loss.detach() for loss in losses.values()])
            nan = torch.full_like(values, torch.nan)
            result = Step(self.tasks, nan, values, nan, torch.zeros_like(values, dtype=torch.bool))
        elif validation is not None:
            result = self.balancer.backward(losses, scaler=scaler, validation_losses=lambda: next(validation))
        else:
            result = self.balancer.backward(losses, scaler=scaler)
        self.optimiser.step()
        return result

    def _losses(self, inputs: Any, targets: dict[str, Tensor]) -> dict[str, Tensor]:
        outputs = self.model(inputs)
        return {task: self.losses[task](outputs[task], targets[task]) for task in targets}

    def _validation_batches(self, epoch: int) -> Any:
        """For rules that look at clean validation data: its losses, batch after batch, without end."""
        if self.validation is None:
            return None

        def endless() -> Any:
            number = 0
            while True:
                for batch in self.validation.shuffled(_seed("validation", self.config.seed, epoch), number):  # type: ignore[union-attr]
                    yield self._losses(prepared(batch, self.benchmark), batch.targets)
                number += 1

        return endless()

    def _train_means(self) -> Row:
        losses, weights = self.history["losses"][-1], self.history["weights"][-1]
        row = {f"train/{task}/loss": float(value) for task, value in zip(self.tasks, losses.mean(0), strict=True)}
        if self.balancer is not None:
            row |= {
                f"train/{task}/weight": float(value) for task, value in zip(self.tasks, weights.mean(0), strict=True)
            }
        return row

    def _evaluate(self) -> Row:
        row: Row = {}
        for name, batches in self.evaluated.items():
            row |= self._scores(name, batches)
        return row

    @torch.no_grad()
    def _scores(self, split: str, batches: Batches) -> Row:
        self.model.eval()
        meters = {task.name: metrics_of(task).to(self.fabric.device) for task in self.benchmark.tasks}
        seen = dict.fromkeys(self.tasks, 0)
        totals = {task: torch.zeros((), device=self.fabric.device) for task in self.tasks}
        for batch in batches.in_order(self.config.limit_batches):
            outputs = self.model(prepared(batch, self.benchmark))
            for task, target in batch.targets.items():
                meters[task].update(outputs[task], target)
                totals[task] += self.losses[task](outputs[task], target) * len(target)
                seen[task] += len(target)
        row: Row = {}
        for task, meter in meters.items():
            row[f"{split}/{task}/loss"] = float(totals[task] / seen[task])
            row |= {f"{split}/{task}/{metric}": value for metric, value in meter.compute().items()}
        return row

    # ------------------------------------------------------------------ survival

    def _save(self, epoch: int) -> None:
        steps = {name: np.concatenate(parts) for name, parts in self.history.items()}
        state = {
            "epoch": epoch,
            "model": _unwrapped(self.model).state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "balancer": None if self.balancer is None else self.balancer.state_dict(),
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state() if self.fabric.device.type == "cuda" else None,
            "scaler": None if self._scaler() is None else self._scaler().state_dict(),
            "rows": self.rows,
            "history": {name: [torch.from_numpy(part) for part in parts] for name, parts in self.history.items()},
            "seconds": self.seconds,
        }
        checkpoint.save(self.folder.checkpoints, state, epoch)
        self.folder.write_metrics(self.rows)
        self.folder.write_steps(steps, self.tasks)

    def _scaler(self) -> Any:
        """The gradient scaler of 16-bit precision, or None."""
        return getattr(self.fabric.strategy.precision, "scaler", None)

    def _restore(self) -> None:
        state = checkpoint.load(self.folder.checkpoints)
        if state is None:
            return
        _unwrapped(self.model).load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.balancer is not None:
            self.balancer.load_state_dict(state["balancer"])
        if state["scaler"] is not None:
            self._scaler().load_state_dict(state["scaler"])
        torch.set_rng_state(state["random"])
        if state["cuda_random"] is not None and self.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_random"])
        self.rows = state["rows"]
        self.history = {name: [part.numpy() for part in parts] for name, parts in state["history"].items()}
        self.seconds = state["seconds"]


def train(config: RunConfig, out: Path, resume: bool = False, watcher: Watcher | None = None) -> dict[str, Any]:
    """Run (or go on with) one training run in folder `out`; its summary."""
    return Run(config, out, resume, watcher).execute()


def _unwrapped(model: Any) -> nn.Module:
    module: nn.Module = model.module
    return module


def _seed(*key: object) -> int:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:4], "big")
