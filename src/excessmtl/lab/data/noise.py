"""Label noise in a split: how much, of which kind, in which tasks, and drawn from which seed.

Which samples (or pixels) are hit depends on the seed and the task's name alone (with `instance` on the inputs too,
with `annotator` not on the task), so one task's noise is the same whatever the other tasks are, and the samples hit at
one level are among those hit at a higher one.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from excessmtl.lab.data.base import Split
from excessmtl.lab.data.tasks import IGNORED, Disturb, Draw, Task, known

TRAINING = "training"
UNIFORM, ANNOTATOR, INSTANCE = "uniform", "annotator", "instance"
_DEGREES = 1.5
"""Of freedom of the outliers: their variance is infinite, their mean absolute value is not."""
_STRENGTH = 2.0
"""How much more often the samples at one end of the projection are hit: by exp of it for each deviation."""


def wrong_classes(target: Tensor, draw: Draw) -> Tensor:
    """Some examples get a class drawn uniformly over all classes."""
    return _replaced(target, draw.examples(target), lambda truth: draw.classes(truth, draw.outputs))


def wrong_bits(target: Tensor, draw: Draw) -> Tensor:
    """Some examples get 0 or 1 with equal probability."""
    return _replaced(target, draw.examples(target), lambda truth: draw.classes(truth, 2))


def gaussian(target: Tensor, draw: Draw) -> Tensor:
    """Some examples get a Gaussian error with the variance of the clean target, output by output."""
    hit = draw.examples(target)
    return target.index_add(0, hit, draw.normal(target[hit].shape, target) * _deviation(target))


def wrong_pixels(target: Tensor, draw: Draw) -> Tensor:
    """Some of the labelled pixels get a class drawn uniformly over all classes."""
    hit = draw.pixels(target != IGNORED)
    return draw.classes(target, draw.outputs).where(hit, target)


def wrong_depths(target: Tensor, draw: Draw) -> Tensor:
    """Some of the known depths get a Gaussian error of their own variance, and stay above the smallest clean one."""
    valid = target != 0
    if not valid.any():
        return target
    clean = target[valid]
    hit = draw.pixels(valid)
    disturbed = target + draw.normal(target.shape, target) * clean.std(correction=0)
    return disturbed.clamp(min=clean.min()).where(hit, target)


def wrong_normals(target: Tensor, draw: Draw) -> Tensor:
    """Some of the known normals get a Gaussian error in each component and are made unit vectors again."""
    valid = (target != 0).any(dim=1, keepdim=True)
    if not valid.any():
        return target
    hit = draw.pixels(valid)
    spread = target.transpose(0, 1)[:, valid[:, 0]].std(dim=1, correction=0).view(1, -1, 1, 1)
    return F.normalize(target + draw.normal(target.shape, target) * spread, dim=1).where(hit, target)


def disturbance(task: Task, kind: str) -> Disturb:
    """What noise of this kind does to the targets of the task; one sentence where it has no meaning there."""
    own = task.kind.disturb
    if own is None:
        raise ValueError(f"noise in task {task.name!r} is not possible: its kind has no `disturb`; leave the task out")
    if kind in (UNIFORM, ANNOTATOR):
        return own
    fitting = _BY_TARGET.get(own, {})
    if kind not in fitting:
        known = ", ".join([UNIFORM, ANNOTATOR, *fitting])
        raise ValueError(f"noise_kind is {kind!r}, which has no meaning for task {task.name!r}; choose from {known}")
    return fitting[kind]


def _next_class(target: Tensor, draw: Draw, bits: bool = False) -> Tensor:
    """Some examples get the class after their own, the last one the first; a bit is flipped."""
    return _replaced(target, draw.examples(target), lambda truth: (truth + 1) % (2 if bits else draw.outputs))


def _first_class(target: Tensor, draw: Draw) -> Tensor:
    """Some examples get class 0, whatever they are."""
    return _replaced(target, draw.examples(target), torch.zeros_like)


def _class_by_inputs(target: Tensor, draw: Draw, bits: bool = False) -> Tensor:
    """Examples far along one direction of the inputs get the wrong class that other directions point to."""
    count = 2 if bits else draw.outputs
    if count < 2:
        raise ValueError("there is no wrong class where there is only one")
    hit = _by_inputs(target, draw)
    likely = torch.stack([draw.projection() for _ in range(count)], dim=1)[hit]
    truth = target[hit].reshape(-1, 1).long().to(likely.device)
    wrong = likely.scatter(1, truth, -torch.inf).argmax(1)
    return target.index_copy(0, hit, wrong.to(target).reshape(target[hit].shape))


def _error_by_inputs(target: Tensor, draw: Draw) -> Tensor:
    """Examples far along one direction of the inputs get an error that is linear in the inputs, of unit deviation."""
    hit = _by_inputs(target, draw)
    outputs = math.prod(target.shape[1:])
    errors = torch.stack([draw.projection() for _ in range(outputs)], dim=1).to(target)[hit]
    return target.index_add(0, hit, errors.reshape(target[hit].shape) * _deviation(target))


def _outliers(target: Tensor, draw: Draw) -> Tensor:
    """Some examples get an error of the target's deviation times Student's t with 1.5 degrees of freedom."""
    hit = draw.examples(target)
    shape = target[hit].shape
    # Bailey's form of Box and Muller's: exact for any number of degrees of freedom. The first is never 0.
    first, second = (torch.rand(shape, dtype=torch.float64, generator=draw.values) for _ in range(2))
    radius = (_DEGREES * ((1 - first) ** (-2 / _DEGREES) - 1)).sqrt()
    errors = radius * (2 * math.pi * second).cos()
    return target.index_add(0, hit, errors.to(target) * _deviation(target))


def _shift(target: Tensor, draw: Draw) -> Tensor:
    """Some examples are one deviation of the target too high."""
    hit = draw.examples(target)
    return target.index_add(0, hit, _deviation(target).expand(target[hit].shape))


def _by_inputs(target: Tensor, draw: Draw) -> Tensor:
    """Indices of the given share of the labelled examples, drawn without replacement with weights exp(2 projection)."""
    # The Gumbel trick: the order does not depend on the level, so lower levels hit some of the same examples.
    uniform = torch.rand(len(target), dtype=torch.float64, generator=draw.chosen)
    keys = _STRENGTH * draw.projection().cpu() - (-(1 - uniform).log()).log()
    return draw.first(keys.argsort(descending=True), target)


def _deviation(target: Tensor) -> Tensor:
    return known(target).std(dim=0, correction=0)


def _replaced(target: Tensor, hit: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    return target.index_copy(0, hit, change(target[hit]).to(target))


_BY_TARGET: Mapping[Disturb, Mapping[str, Disturb]] = {
    wrong_classes: {"pair": _next_class, INSTANCE: _class_by_inputs, "bias": _first_class},
    wrong_bits: {
        "pair": partial(_next_class, bits=True),
        INSTANCE: partial(_class_by_inputs, bits=True),
        "bias": _first_class,
    },
    gaussian: {INSTANCE: _error_by_inputs, "outliers": _outliers, "bias": _shift},
}
"""What a task's own noise is for -> noise of each kind for such targets."""
NOISE_KINDS = (UNIFORM, *dict.fromkeys(kind for own in _BY_TARGET.values() for kind in own), ANNOTATOR)
"""All of them by name."""


@dataclass(frozen=True)
class Noise:
    """A plan for label noise, made of the settings of a run, which are checked.

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
    check_kind(split, tasks, noise)
    if noise.level == 0:
        return split
    targets, by_name = dict(split.targets), {task.name: task for task in tasks}
    of_part = () if part == TRAINING else (part,)
    for name in noise.tasks:
        inputs = split.inputs[name] if isinstance(split.inputs, Mapping) else split.inputs
        draw = Draw(
            noise.level,
            by_name[name].outputs,
            noise.exclude_true,
            chosen=_generator(noise.seed, "all tasks" if noise.kind == ANNOTATOR else name, "chosen", *of_part),
            values=_generator(noise.seed, name, f"epoch {epoch}" if noise.redraw_each_epoch else "values", *of_part),
            directions=_generator(noise.seed, name, "directions"),
            inputs=inputs if isinstance(inputs, Tensor) else None,
        )
        try:
            targets[name] = disturbance(by_name[name], noise.kind)(split.targets[name], draw)
        except ValueError as error:
            raise ValueError(f"noise in task {name!r}: {error}") from error
    return replace(split, targets=targets)


def _generator(*key: int | str) -> Generator:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
