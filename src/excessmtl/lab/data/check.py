"""What a benchmark must satisfy before anything is trained on it."""

from collections import Counter
from collections.abc import Mapping

from torch import nn
from torch.utils.data import DataLoader

from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.kinds import binary, classification
from excessmtl.lab.data.tasks import labelled


def check_benchmark(benchmark: Benchmark) -> None:
    """Refuses, in one sentence, what would fail later or train on nonsense."""
    names = [task.name for task in benchmark.tasks]
    if not names:
        raise ValueError(f"benchmark {benchmark.name!r} has no tasks; give it at least one")
    often, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise ValueError(f"benchmark {benchmark.name!r} has {count} tasks named {often!r}; names must differ")
    # Heads are kept in a ModuleDict, which does not take these.
    heads = nn.ModuleDict()
    bad = next((name for name in names if not name or "." in name or "/" in name or hasattr(heads, name)), None)
    if bad is not None:
        raise ValueError(
            f"task {bad!r} of {benchmark.name!r} has a name with a dot or a slash, or one that torch needs itself "
            "(such as 'type' or 'keys'); rename it"
        )
    unknown = next((name for name in benchmark.noisy_tasks if name not in names), None)
    if unknown is not None:
        raise ValueError(f"noisy_tasks of {benchmark.name!r} names {unknown!r}; its tasks are {names}")
    if benchmark.augment is not None and isinstance(benchmark.train.inputs, Mapping):
        raise ValueError(f"{benchmark.name!r} has inputs of their own for its tasks, which augment cannot take")
    for part in ("train", "validation", "test"):
        _check_split(benchmark, getattr(benchmark, part), part)


def _check_split(benchmark: Benchmark, split: Split, part: str) -> None:
    where = f"the {part} split of {benchmark.name!r}"
    for task in benchmark.tasks:
        if task.name not in split.targets:
            raise ValueError(f"{where} has no targets for task {task.name!r}; it has {sorted(split.targets)}")
        target = split.targets[task.name]
        inputs = split.inputs[task.name] if isinstance(split.inputs, Mapping) else split.inputs
        if not isinstance(inputs, DataLoader) and len(target) != len(inputs):  # type: ignore[arg-type]
            raise ValueError(f"{where} has {len(inputs)} inputs and {len(target)} targets for task {task.name!r}")  # type: ignore[arg-type]
        present = labelled(target)
        known = target if present is None else target[present]
        if not len(known) and (part != "validation" or len(target)):
            raise ValueError(f"{where} has no label for task {task.name!r}; every task needs some")
        classes = {classification.loss: task.outputs, binary.loss: 2}.get(task.kind.loss)
        if classes is not None and len(known) and not 0 <= known.min() <= known.max() <= classes - 1:
            raise ValueError(
                f"task {task.name!r} in {where} has classes from {known.min().item():g} to {known.max().item():g}; "
                f"with {classes} they are 0 to {classes - 1}"
            )
