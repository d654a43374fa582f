"""Cross-entropies that trust their labels as far as the labels deserve.

A wrong label is modelled as one drawn at random, with the frequency f_y that the label has in the batch; that happens
to a share e of the labels. The probability of the label y is then (1 - e) p_y + e f_y, and the loss is its negative
logarithm: forward correction with one unknown. At e = 0 it is the plain cross-entropy. A label that the network finds
much less likely than its frequency gets a small gradient, so it is not memorised. A rare class is not taken for noise,
as its frequency is low. The value stays in the unit of the plain loss.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from excessmtl.losses.noise_rate import NoiseRate, check_strength
from excessmtl.losses.reduction import check_reduction, filled, reduced


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
                raise ValueError(
                    "targets that are class probabilities cannot have a mask (losses.by_task passes one); call the "
                    "loss on the labelled rows, or pass class numbers"
                )
            target = torch.where(mask, target, ignore)
        logs = input.float().log_softmax(classes)
        if self.training:
            self._observe(logs.detach().movedim(classes, -1), target, classes, ignore)
        chance = self._frequencies(target, logs.shape[classes], classes, ignore).log()
        noisy = mixed(logs, self.rate.effective, chance.view(-1, *(1 for _ in logs.shape[classes + 1 :])))
        # These are log-probabilities: the log_softmax inside leaves them as they are.
        return F.cross_entropy(noisy, target, self.weight, **self.options)

    def _frequencies(self, target: Tensor, count: int, classes: int, ignore: int) -> Tensor:
        """[C] how often each class is the label, as if each had been seen once more."""
        if target.is_floating_point():
            seen = target.detach().movedim(classes, -1).reshape(-1, count).sum(0).float()
        else:
            counts = (target != ignore).flatten()
            labels = torch.where(counts, target.flatten(), 0)
            seen = torch.zeros(count, device=target.device).scatter_add(0, labels, counts.float())
        return (seen + 1) / (seen.sum() + count)

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
        frequency = (torch.where(counts, target, 0.0).sum() + 1) / (counts.sum() + 2)
        positive = mixed(F.logsigmoid(input), rate, frequency.log())
        negative = mixed(F.logsigmoid(-input), rate, (-frequency).log1p())
        if self.pos_weight is not None:
            positive = self.pos_weight * positive
        losses = -(target * positive + (1 - target) * negative)
        return reduced(losses if self.weight is None else self.weight * losses, counts, self.reduction)


def mixed(logs: Tensor, rate: Tensor, log_chance: Tensor) -> Tensor:
    """log((1 - rate) exp(logs) + rate * chance)."""
    return torch.logaddexp(logs + torch.log1p(-rate), (rate.log() + log_chance).expand_as(logs))
