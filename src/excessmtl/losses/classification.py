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

from excessmtl.losses.estimate import ordinary
from excessmtl.losses.noise_rate import NoiseRate, check_strength
from excessmtl.losses.reduction import check_reduction, filled, reduced


class RobustCrossEntropy(nn.Module):
    """`nn.CrossEntropyLoss` whose trust in the labels follows the noise it sees.

    Use one for each task. It takes what `nn.CrossEntropyLoss` takes. It learns nothing in `eval()` mode, where
    gradients are off, and from a batch with NaN or infinite logits.

    Args:
        weight: a weight for each class.
        ignore_index: targets of this value do not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: as in `nn.CrossEntropyLoss`.
        strength: a fixed share of wrong labels to reckon with; 0 is the plain loss. None: the estimated one.
        pool: whether all processes of `torch.distributed` make one estimate. Then each of them has to call the loss in
            every step; one without labels passes targets that do not count.
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        strength: float | None = None,
        pool: bool = True,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", ordinary(weight), persistent=False)
        self.options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": check_reduction(reduction)}
        self.options["label_smoothing"] = label_smoothing
        self.rate = NoiseRate(check_strength(strength), pool)

    @property
    def noise(self) -> Tensor:
        """The estimated share of labels drawn at random, a tensor; `float(loss.noise)` reads it."""
        return self.rate.noise

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask`, of the shape of class targets: True where the label counts."""
        classes = 1 if input.ndim > 1 else 0
        ignore = self.options["ignore_index"]
        logs = input.float().log_softmax(classes)
        target = target.to(logs.dtype if target.is_floating_point() else torch.int64)
        if mask is not None:
            if target.is_floating_point():
                raise ValueError(
                    "targets that are class probabilities cannot have a mask (losses.by_task passes one); call the "
                    "loss on the labelled rows, or pass class numbers"
                )
            target = torch.where(mask, target, ignore)
        chance = self._frequencies(target, logs.shape[classes], classes, ignore).log()
        noisy = mixed(logs, self.rate.effective, chance.view(-1, *(1 for _ in logs.shape[classes + 1 :])))
        weight = None if self.weight is None else self.weight.to(noisy.dtype)
        # These are log-probabilities: the log_softmax inside leaves them as they are.
        loss = F.cross_entropy(noisy, target, weight, **self.options)
        if self.rate.learns:  # last: a batch that fails above does not count
            self._observe(logs.detach().movedim(classes, -1), target, classes, ignore)
        return loss

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
        confidence, predicted = logs.max(-1)
        if target.is_floating_point():
            labels, total = target.argmax(classes), confidence.sum() + target.sum()
            counts = torch.ones_like(labels, dtype=torch.bool)
        else:
            labels, counts = target, target != ignore
            total = torch.where(counts, confidence, 0.0).sum()
        self.rate.observe(confidence, predicted != labels, counts, logs.shape[-1], total)


class RobustBCEWithLogits(nn.Module):
    """`nn.BCEWithLogitsLoss` whose trust in the labels follows the noise it sees.

    Use one for each task. It learns nothing in `eval()` mode, where gradients are off, and from a batch with NaN or
    infinite logits. NaN targets do not count. Other targets must lie from 0 to 1: on a CPU an error says so, on a GPU
    the loss is NaN, since an error would make the host wait in every step.

    Args:
        weight: a weight for each element, as in `nn.BCEWithLogitsLoss`.
        reduction: "mean" (over the elements that count), "sum" or "none".
        pos_weight: a weight for positive labels.
        strength: a fixed share of wrong labels to reckon with; 0 is the plain loss. None: the estimated one.
        pool: whether all processes of `torch.distributed` make one estimate. Then each of them has to call the loss in
            every step; one without labels passes NaN targets.
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
        strength: float | None = None,
        pool: bool = True,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", ordinary(weight), persistent=False)
        self.register_buffer("pos_weight", ordinary(pos_weight), persistent=False)
        self.reduction = check_reduction(reduction)
        self.rate = NoiseRate(check_strength(strength), pool)

    @property
    def noise(self) -> Tensor:
        """The estimated share of labels drawn at random, a tensor; `float(loss.noise)` reads it."""
        return self.rate.noise

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask`, of the shape of the target: True where the label counts."""
        input, target, counts = filled(input, target, mask)
        target = _probabilities(target)
        frequency = (target.sum() + 1) / (counts.sum() + 2)
        chance = torch.stack((frequency, 1 - frequency)).log()
        # Of both classes at once, the positive one first.
        logs = F.logsigmoid(torch.stack((input, -input)))
        noisy = mixed(logs, self.rate.effective, chance.view(2, *(1 for _ in input.shape)))
        positive = target if self.pos_weight is None else self.pos_weight * target
        losses = -(torch.stack((positive, 1 - target)) * noisy).sum(0)
        loss = reduced(losses if self.weight is None else self.weight * losses, counts, self.reduction)
        if self.rate.learns:  # last: a batch that fails above does not count
            with torch.no_grad():
                wrong = (input > 0) != (target > 0.5)
                self.rate.observe(logs.amax(0), wrong, counts, 2, (input + target).sum())
        return loss


def _probabilities(target: Tensor) -> Tensor:
    """The targets of two classes, which must lie from 0 to 1. On a GPU those that do not become NaN, and so the loss:
    an error would make the host wait in every step."""
    possible = (target - 0.5).abs() <= 0.5
    if target.device.type == "cpu" and not torch.compiler.is_compiling() and not possible.all():
        raise ValueError(
            f"target must lie from 0 to 1, or be NaN where there is no label, found {target[~possible][0].item():g}; "
            "code the two classes as 0 and 1"
        )
    return torch.where(possible, target, torch.nan)


def mixed(logs: Tensor, rate: Tensor, log_chance: Tensor) -> Tensor:
    """log((1 - rate) exp(logs) + rate * chance)."""
    return torch.logaddexp(logs + torch.log1p(-rate), (rate.log() + log_chance).expand_as(logs))
