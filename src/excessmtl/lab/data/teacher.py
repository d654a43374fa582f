"""`teacher-*`: small worlds in which labels come from a known network, one per regime a weighting rule has to survive.

A random two-layer teacher maps inputs to features that all tasks share; each task reads them in its own way. A run
takes seconds on one core, so an idea about weighting can be tried over many seeds before the real data is touched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor, nn

from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark, standardise
from excessmtl.lab.data.kinds import classification, regression
from excessmtl.lab.data.networks import MLP
from excessmtl.lab.data.tasks import Kind, Task

_INPUTS, _HIDDEN, _FEATURES, _CLASSES = 16, 48, 12, 5
_TEST = 2_000
_OWN = 0.7
"""How much of a task's way to read the features is its own; the rest it has in common with the other tasks."""


@dataclass(frozen=True)
class Regime:
    """One world."""

    summary: str
    kinds: tuple[Kind, ...]
    noisy: tuple[int, ...]
    """Positions of the tasks that get label noise."""
    samples: int
    """Per task, for training."""
    hidden: int
    """Width of the student's trunk."""
    epochs: int
    units: tuple[float, ...] | None = None
    """Standard deviation of each regression target; None: one."""
    separate: bool = False
    """Whether every task has inputs of its own, from a turned and stretched distribution."""
    batch_size: int = 64
    offset: float = 0.0
    """Mean of the regression targets, in units of their standard deviation."""
    waves: tuple[float, ...] | None = None
    """How fast each target oscillates as the teacher's features change: the higher, the harder; None: not at all."""


REGIMES = {
    "teacher-narrow": Regime("a trunk too narrow for its four tasks", (regression,) * 4, (0,), 3_000, 6, 40),
    "teacher-memorise": Regime(
        "a trunk that memorises 400 samples of three tasks", (classification,) * 3, (0,), 400, 256, 80
    ),
    "teacher-separate": Regime(
        "four tasks with inputs of their own", (classification,) * 4, (0,), 700, 96, 40, separate=True
    ),
    "teacher-mixed": Regime(
        "classification and regression in different units",
        (classification, regression, classification, regression, regression),
        (0, 1),
        2_000,
        64,
        30,
        units=(1.0, 8.0, 1.0, 0.2, 1.0),
    ),
    "teacher-many": Regime("24 tasks, a third of them noisy", (regression,) * 24, tuple(range(8)), 1_500, 48, 20),
    "teacher-hard": Regime(
        "five tasks, the last two of them hard",
        (regression,) * 5,
        (0,),
        3_000,
        64,
        30,
        waves=(0.5, 0.5, 0.5, 1.5, 2.5),
    ),
    "teacher-offset": Regime(
        "targets whose mean is three times their deviation", (regression,) * 4, (0,), 2_000, 64, 30, offset=3.0
    ),
    "teacher-majority": Regime("six tasks, four of them noisy", (regression,) * 6, (0, 1, 2, 3), 2_000, 64, 30),
    "teacher-plenty": Regime(
        "more data than the trunk can memorise", (classification,) * 2, (0,), 20_000, 48, 12, batch_size=256
    ),
}


def _teacher(generator: Generator) -> Callable[[Tensor], Tensor]:
    first = torch.randn(_INPUTS, _HIDDEN, generator=generator) * (2 / _INPUTS) ** 0.5
    second = torch.randn(_HIDDEN, _FEATURES, generator=generator) * (2 / _HIDDEN) ** 0.5
    return lambda inputs: torch.tanh((inputs @ first).relu() @ second)


def _load(name: str, regime: Regime, seed: int) -> Benchmark:
    tasks = tuple(
        Task(f"task_{number}", _CLASSES if kind == classification else 1, kind)
        for number, kind in enumerate(regime.kinds, start=1)
    )
    inputs, targets = _make(regime, tasks, Generator().manual_seed(seed * 7_919 + 17))
    first, second = regime.samples, regime.samples + _TEST
    splits = [
        Split(
            {task: own[part] for task, own in inputs.items()} if regime.separate else inputs[tasks[0].name][part],
            {task: own[part] for task, own in targets.items()},
        )
        for part in (slice(0, first), slice(first, second), slice(second, None))
    ]
    return Benchmark(
        name,
        f"random teacher network, {regime.samples:,} samples per task",
        tasks,
        *splits,
        recipe=Recipe(learning_rate=2e-3, weight_decay=0.0, batch_size=regime.batch_size, epochs=regime.epochs),
        noisy_tasks=tuple(tasks[position].name for position in regime.noisy),
        build_trunk=lambda: MLP(_INPUTS, regime.hidden, layers=2),
        build_head=lambda task: nn.Linear(regime.hidden, task.outputs),
    )


def _make(regime: Regime, tasks: Sequence[Task], generator: Generator) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs and clean targets of every task: training, validation and test samples one after the other."""
    features = _teacher(generator)
    rows = regime.samples + 2 * _TEST
    common = {size: torch.randn(_FEATURES, size, generator=generator) for size in (1, _CLASSES)}
    inputs: dict[str, Tensor] = {}
    targets: dict[str, Tensor] = {}
    shared_inputs = torch.randn(rows, _INPUTS, generator=generator)
    for position, task in enumerate(tasks):
        own = shared_inputs
        if regime.separate:
            turn = torch.linalg.qr(torch.randn(_INPUTS, _INPUTS, generator=generator))[0]
            stretch = torch.rand(_INPUTS, generator=generator) + 0.5
            own = torch.randn(rows, _INPUTS, generator=generator) * stretch @ turn
        reading = torch.randn(_FEATURES, task.outputs, generator=generator)
        values = features(own) @ (_OWN * reading + (1 - _OWN) * common[task.outputs])
        if regime.waves is not None:
            values = torch.sin(regime.waves[position] * values)
        inputs[task.name] = own
        if task.kind == classification:
            targets[task.name] = values.argmax(1)
        else:
            unit = 1.0 if regime.units is None else regime.units[position]
            _, scaled = standardise(values[: regime.samples], values)
            targets[task.name] = unit * (scaled + regime.offset)
    return inputs, targets


for _world, _regime in REGIMES.items():
    benchmark(_world, f"made by a random network: {_regime.summary}")(partial(_load, _world, _regime))
