"""Cross-entropies that trust their labels as far as the labels deserve.

A wrong label is modelled as one drawn uniformly from all C classes, which happens to a share e of the labels. The
probability of the label y is then (1 - e) p_y + e / C, and the loss is its negative logarithm: forward correction with
one unknown. At e = 0 it is the plain cross-entropy. A label that the network finds very unlikely gets a small gradient,
so it is not memorised, and the value stays in the unit of the plain loss.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from excessmtl.losses.noise_rate import NoiseRate, check_strength


class RobustCrossEntropy(nn.Module):
    """`nn.CrossEntropyLoss` whose trust in the labels follows the noise it sees.

    Use one for each task. It takes what `nn.CrossEntropyLoss` takes. In `eval()` mode it learns nothing.

    Args:
        weight: a weight for each class.
        ignore_index: targets of this value do not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: as in `nn.CrossEntropyLoss`.
        strength: a fixed share of wrong labels to reckon with; 0 is the plain loss. None: the estimated one.
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        strength: float | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": reduction}
        self.options["label_smoothing"] = label_smoothing
        self.rate = NoiseRate(check_strength(strength))

    @property
    def noise(self) -> Tensor:
        """The estimated share of labels drawn at random, a tensor; `float(loss.noise)` reads it."""
        return self.rate.noise

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask`, of the shape of class targets: True where the label counts."""
        classes = 1 if input.ndim > 1 else 0
        ignore = self.options["ignore_index"]
        if mask is not None:
            if target.is_floating_point():
                raise ValueError("mask is for targets that are class numbers, found class probabilities; select rows")
            target = torch.where(mask, target, ignore)
        logs = input.float().log_softmax(classes)
        if self.training:
            self._observe(logs.detach().movedim(classes, -1), target, classes, ignore)
        noisy = mixed(logs, self.rate.effective, -math.log(logs.shape[classes]))
        # These are log-probabilities: the log_softmax inside leaves them as they are.
        return F.cross_entropy(noisy, target, self.weight, **self.options)

    def _observe(self, logs: Tensor, target: Tensor, classes: int, ignore: int) -> None:
        labels = target.argmax(classes) if target.is_floating_point() else target
        confidence, predicted = logs.max(-1)
        self.rate.observe(confidence, predicted != labels, labels != ignore, logs.shape[-1])


class RobustBCEWithLogits(nn.Module):
    """`nn.BCEWithLogitsLoss` whose trust in the labels follows the noise it sees.

    Use one for each task. In `eval()` mode it learns nothing. NaN targets do not count.

    Args:
        weight: a weight for each element, as in `nn.BCEWithLogitsLoss`.
        reduction: "mean" (over the elements that count), "sum" or "none".
        pos_weight: a weight for positive labels.
        strength: a fixed share of wrong labels to reckon with; 0 is the plain loss. None: the estimated one.
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
        strength: float | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("pos_weight", pos_weight, persistent=False)
        self.reduction = check_reduction(reduction)
        self.rate = NoiseRate(check_strength(strength))

    @property
    def noise(self) -> Tensor:
        """The estimated share of labels drawn at random, a tensor; `float(loss.noise)` reads it."""
        return self.rate.noise

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask`, of the shape of the target: True where the label counts."""
        input, target, counts = filled(input, target, mask)
        if self.training:
            scores = input.detach()
            self.rate.observe(scores.abs(), (scores > 0) != (target > 0.5), counts, 2)
        rate = self.rate.effective
        positive = mixed(F.logsigmoid(input), rate, -math.log(2))
        negative = mixed(F.logsigmoid(-input), rate, -math.log(2))
        if self.pos_weight is not None:
            positive = self.pos_weight * positive
        losses = -(target * positive + (1 - target) * negative)
        return reduced(losses if self.weight is None else self.weight * losses, counts, self.reduction)


def mixed(logs: Tensor, rate: Tensor, log_chance: float) -> Tensor:
    """log((1 - rate) exp(logs) + rate * chance)."""
    return torch.logaddexp(logs + torch.log1p(-rate), rate.log() + log_chance)


def filled(input: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Both in fp32, and which elements count; a target that does not count is 0, so that it makes no NaN gradient."""
    if input.shape != target.shape:
        raise ValueError(
            f"target must have the shape of the input, {list(input.shape)}, found {list(target.shape)}; reshape one"
        )
    counts = ~target.isnan() if target.is_floating_point() else torch.ones_like(target, dtype=torch.bool)
    counts = counts if mask is None else counts & mask
    return input.float(), torch.where(counts, target.float(), 0.0), counts


def reduced(losses: Tensor, counts: Tensor, reduction: str) -> Tensor:
    """Over the elements that count."""
    losses = torch.where(counts, losses, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() / counts.sum() if reduction == "mean" else losses.sum()


def check_reduction(reduction: str) -> str:
    """The reduction, or a ValueError."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', found {reduction!r}")
    return reduction
