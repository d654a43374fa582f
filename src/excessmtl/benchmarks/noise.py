"""Label noise in the training split: how much, in which tasks, and drawn from which seed.

Which samples (or pixels) are hit depends on the seed and the task's name alone, so one task's noise is the
same whatever the other tasks are, and the samples hit at one level are among those hit at a higher one.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from excessmtl.benchmarks.base import Kind, Split, Task
from excessmtl.benchmarks.losses import IGNORED


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

    Classes and pixel labels are drawn uniformly over all classes. Real values get a Gaussian of the clean
    target's own variance: each output of a regression task, valid depths (kept no smaller than the smallest
    clean one, since a depth is positive), each component of the normals (made unit vectors again).
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
        task = known[name]
        if noise.exclude_true and task.kind in ("classification", "segmentation") and task.outputs < 2:
            raise ValueError(f"exclude_true leaves no class to draw for task {name!r}, which has one class")
        values = _generator(noise.seed, name, f"epoch {epoch}" if noise.redraw_each_epoch else "values")
        targets[name] = _DISTURB[task.kind](
            split.targets[name], task, noise, _generator(noise.seed, name, "chosen"), values
        )
    return Split(split.inputs, targets)


def _generator(*key: int | str) -> Generator:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def _some_samples(target: Tensor, level: float, chosen: Generator) -> Tensor:
    """Exactly the given share of the samples, rounded, as indices."""
    order = torch.randperm(len(target), generator=chosen)
    return order[: round(level * len(target))].to(target.device)


def _some_pixels(labelled: Tensor, level: float, chosen: Generator) -> Tensor:
    """Each labelled pixel with probability `level`, as a mask."""
    return labelled & (torch.rand(labelled.shape, generator=chosen) < level).to(labelled.device)


def _other_class(truth: Tensor, task: Task, noise: Noise, values: Generator) -> Tensor:
    drawn = torch.randint(task.outputs - noise.exclude_true, truth.shape, generator=values).to(truth)
    return drawn + (drawn >= truth) if noise.exclude_true else drawn


def _gaussian(shape: torch.Size, like: Tensor, values: Generator) -> Tensor:
    return torch.randn(shape, generator=values).to(like)


def _classes(target: Tensor, task: Task, noise: Noise, chosen: Generator, values: Generator) -> Tensor:
    hit = _some_samples(target, noise.level, chosen)
    return target.index_copy(0, hit, _other_class(target[hit], task, noise, values))


def _numbers(target: Tensor, task: Task, noise: Noise, chosen: Generator, values: Generator) -> Tensor:
    hit = _some_samples(target, noise.level, chosen)
    error = _gaussian(target[hit].shape, target, values) * target.std(dim=0, correction=0)
    return target.index_add(0, hit, error)


def _labels(target: Tensor, task: Task, noise: Noise, chosen: Generator, values: Generator) -> Tensor:
    hit = _some_pixels(target != IGNORED, noise.level, chosen)
    return _other_class(target, task, noise, values).where(hit, target)


def _depths(target: Tensor, task: Task, noise: Noise, chosen: Generator, values: Generator) -> Tensor:
    valid = target != 0
    if not valid.any():
        return target
    clean = target[valid]
    hit = _some_pixels(valid, noise.level, chosen)
    disturbed = target + _gaussian(target.shape, target, values) * clean.std(correction=0)
    return disturbed.clamp(min=clean.min()).where(hit, target)


def _normals(target: Tensor, task: Task, noise: Noise, chosen: Generator, values: Generator) -> Tensor:
    valid = (target != 0).any(dim=1, keepdim=True)
    if not valid.any():
        return target
    hit = _some_pixels(valid, noise.level, chosen)
    spread = target.transpose(0, 1)[:, valid[:, 0]].std(dim=1, correction=0).view(1, -1, 1, 1)
    disturbed = F.normalize(target + _gaussian(target.shape, target, values) * spread, dim=1)
    return disturbed.where(hit, target)


_DISTURB: dict[Kind, Callable[[Tensor, Task, Noise, Generator, Generator], Tensor]] = {
    "classification": _classes,
    "regression": _numbers,
    "segmentation": _labels,
    "depth": _depths,
    "normals": _normals,
}
