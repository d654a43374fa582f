"""Where weighting rules are tried: small benchmarks, each loaded for many noise levels and seeds at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from excessmtl.lab.data import registry
from excessmtl.lab.data.base import Benchmark, Recipe, Targets
from excessmtl.lab.data.noise import Noise, apply
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.data.teacher import REGIMES

_TEST = 3_000
"""At most so many test samples are scored."""


@dataclass(frozen=True)
class World:
    """A benchmark and what the bench changes in it. All tasks must look at the same inputs."""

    benchmark: str
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the benchmark's recipe to replace."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the benchmark's loader."""
    hidden: tuple[int, ...] | None = None
    """Widths of the perceptron that stands in for the benchmark's trunk; None: its own, a perceptron already."""


SARCOS = "sarcos"
WORLDS = {
    **{name: World(name) for name in REGIMES if name != "teacher-separate"},
    "sarcos": World(SARCOS, {"epochs": 60}),
    "sarcos-no-decay": World(SARCOS, {"epochs": 60, "weight_decay": 0.0}),
    "multimnist-mlp": World("multimnist", {"epochs": 20, "batch_size": 64}, {"bundled": True}, hidden=(256, 256)),
}
QUICK = ("teacher-memorise", "teacher-many")


@dataclass(frozen=True)
class Cases:
    """One world at every noise level and seed: stacked tensors whose first dimension counts these cases."""

    world: str
    cases: tuple[tuple[float, int], ...]
    """(noise level, seed)."""
    tasks: tuple[Task, ...]
    noisy_tasks: tuple[str, ...]
    recipe: Recipe
    hidden: tuple[int, ...]
    inputs: Tensor
    targets: Targets
    test_inputs: Tensor
    test_targets: Targets


def load(
    name: str, levels: Sequence[float], seeds: Sequence[int], data: Path | None = None, epochs_factor: float = 1.0
) -> Cases:
    """Every case of a world; `data` is handed to the benchmark's loader."""
    world = WORLDS[name]
    made = {seed: registry()[world.benchmark].load(data, seed, **world.options) for seed in seeds}
    cases = tuple((level, seed) for level in levels for seed in seeds)
    noisy = [
        apply(made[seed].train, made[seed].tasks, Noise(level, made[seed].noisy_tasks, seed)) for level, seed in cases
    ]
    one = made[seeds[0]]
    recipe = replace(one.recipe, **world.recipe)
    return Cases(
        world=name,
        cases=cases,
        tasks=one.tasks,
        noisy_tasks=one.noisy_tasks,
        recipe=replace(recipe, epochs=max(1, round(recipe.epochs * epochs_factor))),
        hidden=world.hidden or _widths(one),
        inputs=torch.stack([_flat(made[seed], split.inputs) for (_, seed), split in zip(cases, noisy, strict=True)]),
        targets={task.name: torch.stack([split.targets[task.name] for split in noisy]) for task in one.tasks},
        test_inputs=torch.stack([_flat(made[seed], made[seed].test.inputs)[:_TEST] for _, seed in cases]),
        test_targets={
            task.name: torch.stack([made[seed].test.targets[task.name][:_TEST] for _, seed in cases])
            for task in one.tasks
        },
    )


def _flat(benchmark: Benchmark, inputs: object) -> Tensor:
    assert isinstance(inputs, Tensor), f"{benchmark.name} has inputs for each task: its networks cannot be stacked"
    return benchmark.prepare(inputs).reshape(len(inputs), -1).float()


def _widths(benchmark: Benchmark) -> tuple[int, ...]:
    return tuple(layer.out_features for layer in benchmark.build_trunk().modules() if isinstance(layer, nn.Linear))
