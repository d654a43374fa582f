"""What bad labels look like, for each of the ready kinds."""

from torch import Tensor
from torch.nn import functional as F

from excessmtl.lab.data.losses import IGNORED
from excessmtl.lab.data.tasks import Draw, labelled


def wrong_classes(target: Tensor, draw: Draw) -> Tensor:
    """Some examples get a class drawn uniformly over all classes."""
    return _classes(target, draw, draw.outputs)


def wrong_bits(target: Tensor, draw: Draw) -> Tensor:
    """Some examples get 0 or 1 with equal probability."""
    return _classes(target, draw, 2)


def gaussian(target: Tensor, draw: Draw) -> Tensor:
    """Some examples get a Gaussian error with the variance of the clean target, output by output."""
    hit = draw.examples(target)
    present = labelled(target)
    deviation = (target if present is None else target[present]).std(dim=0, correction=0)
    return target.index_add(0, hit, draw.normal(target[hit].shape, target) * deviation)


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


def _classes(target: Tensor, draw: Draw, count: int) -> Tensor:
    hit = draw.examples(target)
    return target.index_copy(0, hit, draw.classes(target[hit], count))
