"""Label noise in the training split: how much, in which tasks, and drawn from which seed.

Which samples (or pixels) are hit depends on the seed and the task's name alone, so one task's noise is the
same whatever the other tasks are, and the samples hit at one level are among those hit at a higher one.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Generator

from excessmtl.benchmarks.base import Split
from excessmtl.benchmarks.tasks import Draw, Task


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
    """

    level: float
    tasks: tuple[str, ...]
    seed: int
    exclude_true: bool = False
    redraw_each_epoch: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.level <= 1:
            raise ValueError(f"noise level is {self.level}: give a share between 0 and 1")


def apply(split: Split, tasks: Sequence[Task], noise: Noise, epoch: int = 0) -> Split:
    """The split with disturbed targets in `noise.tasks`; the given split is left as it is.

    What a disturbed target is depends on the kind of the task (`Kind.disturb`).
    `epoch` matters with `redraw_each_epoch` only.
    """
    known = {task.name: task for task in tasks}
    unknown = [name for name in noise.tasks if name not in known]
    if unknown:
        raise ValueError(f"noisy task {unknown[0]!r} is unknown: choose from {', '.join(known)}")
    if noise.level == 0:
        return split
    targets = dict(split.targets)
    for name in noise.tasks:
        disturb = known[name].kind.disturb
        if disturb is None:
            raise ValueError(f"noise in task {name!r} is not possible: its kind has no `disturb`; leave the task out")
        values = _generator(noise.seed, name, f"epoch {epoch}" if noise.redraw_each_epoch else "values")
        chosen = _generator(noise.seed, name, "chosen")
        draw = Draw(noise.level, known[name].outputs, noise.exclude_true, chosen, values)
        try:
            targets[name] = disturb(split.targets[name], draw)
        except ValueError as error:
            raise ValueError(f"noise in task {name!r}: {error}") from error
    return replace(split, targets=targets)


def _generator(*key: int | str) -> Generator:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
