"""Label noise in a split: how much, of which kind, in which tasks, and drawn from which seed.

Which samples (or pixels) are hit depends on the seed and the task's name alone (with `instance` on the inputs too,
with `annotator` not on the task), so one task's noise is the same whatever the other tasks are, and the samples hit at
one level are among those hit at a higher one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Generator, Tensor

from excessmtl.lab.data.base import Split
from excessmtl.lab.data.noise_kinds import ANNOTATOR, INSTANCE, NOISE_KINDS, UNIFORM, disturbance
from excessmtl.lab.data.tasks import Draw, Task

TRAINING = "training"


@dataclass(frozen=True)
class Noise:
    """A plan for label noise.

    Args:
        level: the share of samples (of labelled pixels, for maps) whose target is disturbed.
        tasks: names of the tasks that are hit.
        seed: of the noise alone; the same seed gives the same noise.
        exclude_true: whether a drawn class is never the true one. The paper draws from all classes. It has
            no meaning for real-valued targets and changes nothing there.
        redraw_each_epoch: draw new values for the same samples in every epoch.
        kind: "uniform": what the kind of the task says (`Kind.disturb`); "pair": the next class; "instance": depends on
            the inputs; "outliers": heavy-tailed errors; "bias": class 0, or a deviation too high; "annotator": as
            "uniform", on the same samples in all tasks.
    """

    level: float
    tasks: tuple[str, ...]
    seed: int
    exclude_true: bool = False
    redraw_each_epoch: bool = False
    kind: str = UNIFORM

    def __post_init__(self) -> None:
        if not 0 <= self.level <= 1:
            raise ValueError(f"noise level is {self.level}: give a share between 0 and 1")
        if self.kind not in NOISE_KINDS:
            raise ValueError(f"noise kind is {self.kind!r}: choose from {', '.join(NOISE_KINDS)}")


def check_kind(split: Split, tasks: Sequence[Task], noise: Noise) -> None:
    """Refuses, at any level, a kind other than "uniform" that has no meaning for these tasks or inputs."""
    if noise.kind == UNIFORM:
        return
    if noise.kind == INSTANCE and not isinstance(split.inputs, Tensor | Mapping):
        raise ValueError("noise_kind is 'instance', but the inputs are read while training; choose another kind")
    if noise.kind == ANNOTATOR and isinstance(split.inputs, Mapping):
        raise ValueError("noise_kind is 'annotator', but every task has samples of its own; choose another kind")
    for task in tasks:
        if task.name in noise.tasks:
            disturbance(task, noise.kind)


def apply(split: Split, tasks: Sequence[Task], noise: Noise, epoch: int = 0, part: str = TRAINING) -> Split:
    """The split with disturbed targets in `noise.tasks`; the given split is left as it is.

    What a disturbed target is depends on the kind of the task and of the noise. `epoch` matters with
    `redraw_each_epoch` only. `part` names the split: another part gets other draws of the same noise.
    """
    known = {task.name: task for task in tasks}
    unknown = [name for name in noise.tasks if name not in known]
    if unknown:
        raise ValueError(f"noisy task {unknown[0]!r} is unknown: choose from {', '.join(known)}")
    check_kind(split, tasks, noise)
    if noise.level == 0:
        return split
    targets = dict(split.targets)
    of_part = () if part == TRAINING else (part,)
    for name in noise.tasks:
        draw = Draw(
            noise.level,
            known[name].outputs,
            noise.exclude_true,
            chosen=_generator(noise.seed, "all tasks" if noise.kind == ANNOTATOR else name, "chosen", *of_part),
            values=_generator(noise.seed, name, f"epoch {epoch}" if noise.redraw_each_epoch else "values", *of_part),
            directions=_generator(noise.seed, name, "directions"),
            inputs=_tensor(split, name),
        )
        try:
            targets[name] = disturbance(known[name], noise.kind)(split.targets[name], draw)
        except ValueError as error:
            raise ValueError(f"noise in task {name!r}: {error}") from error
    return replace(split, targets=targets)


def _tensor(split: Split, task: str) -> Tensor | None:
    inputs = split.inputs[task] if isinstance(split.inputs, Mapping) else split.inputs
    return inputs if isinstance(inputs, Tensor) else None


def _generator(*key: int | str) -> Generator:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
