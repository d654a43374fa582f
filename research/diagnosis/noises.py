"""Label noise that is not symmetric: pair flips, and flips that depend on the input."""

import torch
from torch import Generator, Tensor

from excessmtl.lab.data.kinds import classification
from excessmtl.lab.data.noise import gaussian, wrong_classes
from excessmtl.lab.data.tasks import Draw, Task

KINDS = ("symmetric", "pair", "instance")


def disturbed(kind: str, task: Task, inputs: Tensor, target: Tensor, level: float, seed: int, place: int) -> Tensor:
    """The target with a share `level` of bad labels.

    Args:
        kind: "symmetric" is the laboratory's own noise; the two others are for classes only.
        task: whose target it is.
        inputs: of the task, in the order of the target.
        target: clean.
        level: share of the examples.
        seed: of the noise. The way in which inputs decide about flips depends on it alone.
        place: number of the split, so that each has draws of its own.
    """
    own, chosen = (Generator().manual_seed(1_000_003 * seed + 7 * place + part) for part in (1, 2))
    draw = Draw(level, task.outputs, False, chosen, own)
    if task.kind != classification:
        if kind != "symmetric":
            raise ValueError(f"noise {kind!r} is for classes only, and {task.name!r} has none")
        return gaussian(target, draw)
    if kind == "symmetric":
        return wrong_classes(target, draw)
    if kind == "pair":
        hit = draw.examples(target)
        return target.index_copy(0, hit, (target[hit] + 1) % task.outputs)
    return _by_instance(inputs.flatten(1).float(), target, task.outputs, level, seed, own)


def _by_instance(inputs: Tensor, target: Tensor, classes: int, level: float, seed: int, generator: Generator) -> Tensor:
    """Each example has a flip rate of its own (mean `level`, deviation 0.1) and a wrong class that its input chooses.

    After the recipe of Xia et al. (2020, "Part-dependent label noise"), with the most likely wrong class of every
    example in place of a draw.
    """
    scaled = (inputs - inputs.mean(0)) / inputs.std(0).clamp(min=1e-3)
    directions = torch.randn(classes, inputs.shape[1], classes, generator=Generator().manual_seed(seed + 17))
    scores = inputs.new_empty(len(target), classes)
    for number, own in enumerate(directions):  # class by class: a matrix per example would take too much memory
        scores[target == number] = scaled[target == number] @ own
    scores[torch.arange(len(target)), target] = -torch.inf
    rates = (level + 0.1 * torch.randn(len(target), generator=generator)).clamp(0, 1)
    hit = torch.rand(len(target), generator=generator) < rates
    return torch.where(hit, scores.argmax(1), target)
