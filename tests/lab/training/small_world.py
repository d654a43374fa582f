"""A small benchmark with what a loop can get wrong: batch norm, dropout, augmentation, inputs shared or not."""

import torch
from torch import Generator, nn

from excessmtl.lab.data import kinds as ready
from excessmtl.lab.data.base import Benchmark, Recipe, Split
from excessmtl.lab.data.tasks import Task

FEATURES, HIDDEN, CLASSES = 5, 8, 4
ROWS = {"train": 70, "validation": 30, "test": 50}
RECIPE = Recipe(learning_rate=0.02, weight_decay=0.03, batch_size=16, epochs=2)


def load(data, seed, *, kinds="classification", separate=False, augmented=False):
    """Three tasks, the second of them noisy. `kinds`: one for all tasks, or "mixed"."""
    chosen = ["classification", "regression", "classification"] if kinds == "mixed" else [kinds] * 3
    tasks = tuple(
        Task(name, CLASSES if kind == "classification" else 1, getattr(ready, kind))
        for name, kind in zip("abc", chosen, strict=True)
    )
    generator = Generator().manual_seed(seed + 1)
    teacher = torch.randn(3, FEATURES, CLASSES, generator=generator)
    splits = {}
    for part, rows in ROWS.items():
        inputs, targets = {}, {}
        for number, task in enumerate(tasks):
            # With inputs of their own the tasks differ in length too.
            own = torch.randn(rows - 7 * number * separate, FEATURES, generator=generator)
            inputs[task.name] = own if separate or number == 0 else inputs["a"]
            values = inputs[task.name] @ teacher[number]
            targets[task.name] = values.argmax(1) if chosen[number] == "classification" else 3 * values[:, :1] + 5
        splits[part] = Split(inputs if separate else inputs["a"], targets)
    return Benchmark(
        name="small-world",
        source="made by a test",
        tasks=tasks,
        recipe=RECIPE,
        noisy_tasks=("b",),
        build_trunk=lambda: nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.Tanh(), nn.Dropout(0.2)
        ),
        build_head=lambda task: nn.Linear(HIDDEN, task.outputs),
        prepare=lambda stored: 2 * stored.float(),
        augment=_augment if augmented else None,
        **splits,
    )


def _augment(inputs, targets, generator):
    """Shake the inputs; the targets of some examples are those of their neighbours."""
    swapped = torch.rand(len(inputs), generator=generator) < 0.1
    chosen = torch.arange(len(inputs)) - swapped.long()
    neighbours = {task: target[chosen] for task, target in targets.items()}
    return inputs + 0.3 * torch.randn(inputs.shape, generator=generator), neighbours
