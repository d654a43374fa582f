"""The loss of each kind of task: a mean over the mini-batch, so that losses do not grow with its size."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from excessmtl.benchmarks.base import Kind

Loss = Callable[[Tensor, Tensor], Tensor]
IGNORED = -1
"""The label of pixels whose class is unknown."""


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of `values` where `valid`; zero, with zero gradient, where nothing is."""
    return values.where(valid, 0).sum() / valid.sum().clamp(min=1)


def cosine(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine between the predicted and the true normal at every pixel, and where the truth is known."""
    return F.cosine_similarity(output, target, dim=1), (target != 0).any(dim=1)


def _classification(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target.long())


def _regression(output: Tensor, target: Tensor) -> Tensor:
    # One number per example may come as (n,) or (n, 1); their difference would broadcast to (n, n).
    return F.mse_loss(output, target.reshape_as(output))


def _segmentation(output: Tensor, target: Tensor) -> Tensor:
    # Not cross_entropy's own mean: it is 0/0 where a batch has no labelled pixel.
    losses = F.cross_entropy(output, target.long(), ignore_index=IGNORED, reduction="none")
    return masked_mean(losses, target != IGNORED)


def _depth(output: Tensor, target: Tensor) -> Tensor:
    target = target.reshape_as(output)
    return masked_mean((output - target).abs(), target != 0)


def _normals(output: Tensor, target: Tensor) -> Tensor:
    return 1 - masked_mean(*cosine(output, target))


_LOSSES: dict[Kind, Loss] = {
    "classification": _classification,
    "regression": _regression,
    "segmentation": _segmentation,
    "depth": _depth,
    "normals": _normals,
}


def loss_of(kind: Kind) -> Loss:
    """(output, target) -> mean loss of the batch, a scalar.

    Cross-entropy for classes; squared error, also averaged over a task's outputs; cross-entropy over the
    labelled pixels (label other than -1); absolute error over the pixels whose depth is known (not zero);
    one minus the mean cosine over the pixels whose normal is known (not zero).
    """
    if kind not in _LOSSES:
        raise ValueError(f"kind is {kind!r}: choose one of {', '.join(_LOSSES)}")
    return _LOSSES[kind]
