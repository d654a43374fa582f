"""Cross-entropies that trust their labels as far as the labels deserve.

A wrong label is modelled as one drawn at random, with the frequency f_y that the label has in the batch; that happens
to a share e of the labels. The probability of the label y is then (1 - e) p_y + e f_y, and the loss is its negative
logarithm: forward correction with one unknown. At e = 0 it is the plain cross-entropy. A label that the network finds
much less likely than its frequency gets a small gradient, so it is not memorised. A rare class is not taken for noise,
as its frequency is low.

Even a perfect network cannot bring that loss below the entropy of the noise. The *value* is therefore without it, or a
weighting method would take weight away for noise that the loss already reckons with. The gradient does not change.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from excessmtl.losses.estimate import ordinary, stacked
from excessmtl.losses.noise_rate import NoiseRate, check_strength
from excessmtl.losses.reduction import broadcast, check_reduction, check_shapes, counted, filled, reduced
from excessmtl.losses.together import Entries, Lesson, StackableLoss

_LEAST = 0.1
"""This share of the loss remains when the entropy of the noise is taken away. Methods that divide by losses, or take
their logarithm, need values above zero."""


class RobustCrossEntropy(StackableLoss):
    """`nn.CrossEntropyLoss` whose trust in the labels follows the noise it sees.

    Its value is without the entropy of that noise; its gradient is that of the likelihood. Use one for each task. It
    takes what `nn.CrossEntropyLoss` takes. It learns nothing in `eval()` mode, where gradients are off, and from a
    batch with NaN or infinite logits.

    Args:
        weight: a weight for each class.
        ignore_index: targets of this value do not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: as in `nn.CrossEntropyLoss`.
        strength: a fixed share of wrong labels to reckon with; 0 is the plain loss. None: the estimated one.
        pool: whether all processes of `torch.distributed` make one estimate. Then each of them has to call the loss in
            every step; one without labels passes targets that do not count.
        entropy: whether the value contains the entropy of the noise, as in versions before this option.
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
        entropy: bool = False,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", ordinary(weight), persistent=False)
        self.ignore_index = ignore_index
        self.options: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
        self.reduction = check_reduction(reduction)
        self.rate = NoiseRate(check_strength(strength), pool)
        self.entropy = entropy

    @property
    def noise(self) -> Tensor:
        """The estimated share of labels drawn at random, a tensor; `float(loss.noise)` reads it."""
        return self.rate.noise

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask`, of the shape of class targets: True where the label counts."""
        if mask is not None:
            self._check_classes(target)
        if input.ndim == 1:  # one sample
            values: Tensor = self(input[None], target[None], None if mask is None else mask[None])
            return values[0] if values.ndim else values
        return self.alone(input, target, torch.ones_like(target, dtype=torch.bool) if mask is None else mask)

    def alike(self, shape: torch.Size, target: Tensor) -> Hashable:
        """The options, and what is learned from. Losses with weights are computed alone."""
        self._check_classes(target)
        if target.shape != (*shape[:1], *shape[2:]):
            raise ValueError(
                f"target must have the shape of the input {list(shape)} without its classes, found "
                f"{list(target.shape)}; reshape one"
            )
        weight = None if self.weight is None else id(self)
        return weight, tuple(self.options.values()), self.rate.fixed, self.rate.pool, self.entropy, self.rate.training

    @classmethod
    def entries(cls, losses: Sequence[Self], input: Tensor, target: Tensor, counts: Tensor) -> Entries:
        """The negative log-likelihoods of the labels; reduced where the one loss has a reduction."""
        first, ignore = losses[0], losses[0].options["ignore_index"]
        logs = input.float().log_softmax(2)
        soft = target.is_floating_point()
        target = target.to(logs.dtype) if soft else torch.where(counts, target.long(), ignore)
        counts = counts if soft else target != ignore
        rates = [loss.rate for loss in losses]
        strength = first.rate.effective(stacked(rates))
        frequencies = _frequencies(target, counts, logs.shape[2])
        chance = frequencies.log().view(len(losses), 1, -1, *(1 for _ in logs.shape[3:]))
        noisy = mixed(logs, broadcast(strength, logs), chance)
        weight = None if first.weight is None else first.weight.to(noisy.dtype)
        # These are log-probabilities: the log_softmax inside leaves them as they are.
        samples = noisy.flatten(0, 1), target.flatten(0, 1), weight
        values = F.cross_entropy(*samples, reduction=first.reduction, **first.options)
        values = values.view(*logs.shape[:2], *logs.shape[3:]) if values.ndim else values
        if not first.entropy:
            labels = target.argmax(2) if soft else torch.where(counts, target, 0)
            likelihoods = noisy.detach().gather(2, labels.unsqueeze(2)).squeeze(2)
            share = _share_beyond_noise(-likelihoods, None if soft else counts, strength, frequencies)
            values = _with_value(values, broadcast(share, values) if values.ndim else share[0])
        return values, _lesson(rates, logs.detach(), target, counts) if first.rate.learns else None

    def _check_classes(self, target: Tensor) -> None:
        if target.is_floating_point():
            raise ValueError(
                "targets that are class probabilities cannot have a mask (losses.by_task passes one); call the "
                "loss on the labelled rows, or pass class numbers"
            )


def _frequencies(target: Tensor, counts: Tensor, classes: int) -> Tensor:
    """[losses, classes] how often each class is the label, as if each had been seen once more."""
    if target.is_floating_point():
        seen = target.movedim(2, -1).flatten(1, -2).sum(1)
    else:
        counted = counts.flatten(1)
        labels = torch.where(counted, target.flatten(1), 0)
        seen = torch.zeros(len(target), classes, device=target.device, dtype=torch.float32)
        try:
            seen = seen.scatter_add(1, labels, counted.float())
        except RuntimeError as error:  # on a CPU; a GPU stops the process by itself
            strange = labels[(labels < 0) | (labels >= classes)][0].item()
            raise ValueError(
                f"target must hold classes from 0 to {classes - 1}, as many as there are outputs, or ignore_index "
                f"where there is no label, found {strange}"
            ) from error
    return (seen + 1) / (seen.sum(1, keepdim=True) + classes)


def _share_beyond_noise(losses: Tensor, counts: Tensor | None, strength: Tensor, frequencies: Tensor) -> Tensor:
    """[losses] the share of the mean loss that is not the entropy of the noise that the loss reckons with.

    Args:
        losses: negative log-likelihoods of the labels, [losses, ...].
        counts: which of them count; None: all.
        strength: the noise rates, [losses].
        frequencies: of the classes, [losses, classes].
    """
    counts = (torch.ones_like(losses, dtype=torch.bool) if counts is None else counts).flatten(1)
    mean = torch.where(counts, losses.flatten(1), 0.0).sum(1) / counts.sum(1).clamp(min=1)
    changed = strength[:, None] * frequencies
    entropies: Tensor = torch.special.entr(changed)
    kept: Tensor = torch.special.entr(changed + (1 - strength)[:, None])
    entropy = (frequencies * (kept - entropies)).sum(1) + entropies.sum(1)
    # Where nothing is lost the share does not matter: zero over zero.
    return (1 - entropy / mean).nan_to_num(1.0).clamp(_LEAST, 1)


def _with_value(values: Tensor, share: Tensor) -> Tensor:
    """The value times a share, with the gradient of all of it."""
    return values - (1 - share) * values.detach()


@torch.no_grad()
def _lesson(rates: Sequence[NoiseRate], logs: Tensor, target: Tensor, counts: Tensor) -> Lesson:
    confidence, predicted = logs.max(2)
    soft = target.is_floating_point()
    labels = target.argmax(2) if soft else target
    counts = torch.ones_like(labels, dtype=torch.bool) if soft else counts
    total = torch.where(counts, confidence, 0.0).flatten(1).sum(1)
    if soft:
        total = total + target.flatten(1).sum(1)
    return Lesson(rates, (confidence, predicted != labels, counts, total, logs.shape[2]))


class RobustBCEWithLogits(StackableLoss):
    """`nn.BCEWithLogitsLoss` whose trust in the labels follows the noise it sees.

    Its value is without the entropy of that noise; its gradient is that of the likelihood. Use one for each task. It
    learns nothing in `eval()` mode, where gradients are off, and from a batch with NaN or infinite logits. NaN targets
    do not count. Other targets must lie from 0 to 1: on a CPU an error says so, on a GPU the loss is NaN, since an
    error would make the host wait in every step.

    Args:
        weight: a weight for each element, as in `nn.BCEWithLogitsLoss`.
        reduction: "mean" (over the elements that count), "sum" or "none".
        pos_weight: a weight for positive labels.
        strength: a fixed share of wrong labels to reckon with; 0 is the plain loss. None: the estimated one.
        pool: whether all processes of `torch.distributed` make one estimate. Then each of them has to call the loss in
            every step; one without labels passes NaN targets.
        entropy: whether the value contains the entropy of the noise, as in versions before this option.
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
        entropy: bool = False,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", ordinary(weight), persistent=False)
        self.register_buffer("pos_weight", ordinary(pos_weight), persistent=False)
        self.reduction = check_reduction(reduction)
        self.rate = NoiseRate(check_strength(strength), pool)
        self.entropy = entropy

    @property
    def noise(self) -> Tensor:
        """The estimated share of labels drawn at random, a tensor; `float(loss.noise)` reads it."""
        return self.rate.noise

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask`, of the shape of the target: True where the label counts."""
        counts = counted(input, target, mask)
        return reduced(self.alone(input, target, counts), counts, self.reduction)

    def alike(self, shape: torch.Size, target: Tensor) -> Hashable:
        """The options, and what is learned from."""
        check_shapes(shape, target.shape)
        weights = [None if weight is None else weight.shape for weight in (self.weight, self.pos_weight)]
        return *weights, self.rate.fixed, self.rate.pool, self.entropy, self.rate.training

    @classmethod
    def entries(cls, losses: Sequence[Self], input: Tensor, target: Tensor, counts: Tensor) -> Entries:
        """The negative log-likelihoods of the labels."""
        first, rates = losses[0], [loss.rate for loss in losses]
        input, target = filled(input, target, counts)
        target = probabilities(target)
        frequency = (target.flatten(1).sum(1) + 1) / (counts.flatten(1).sum(1) + 2)
        # Of both classes at once, the positive one first.
        chance = torch.stack((frequency, 1 - frequency)).log().view(2, -1, *(1 for _ in input.shape[1:]))
        logs = F.logsigmoid(torch.stack((input, -input)))
        strength = first.rate.effective(stacked(rates))
        noisy = mixed(logs, broadcast(strength, input), chance)
        positive = _weighted(target, [loss.pos_weight for loss in losses])
        values = -(torch.stack((positive, 1 - target)) * noisy).sum(0)
        values = _weighted(values, [loss.weight for loss in losses])
        if not first.entropy:
            likelihoods = torch.where(target > 0.5, noisy[0], noisy[1]).detach()
            frequencies = torch.stack((frequency, 1 - frequency), 1)
            share = _share_beyond_noise(-likelihoods, counts, strength, frequencies)
            values = _with_value(values, broadcast(share, values))
        if not first.rate.learns:
            return values, None
        with torch.no_grad():
            wrong = (input > 0) != (target > 0.5)
            total = (input + target).flatten(1).sum(1)
            return values, Lesson(rates, (logs.detach().amax(0), wrong, counts, total, 2))


def probabilities(target: Tensor) -> Tensor:
    """The targets of two classes, which must lie from 0 to 1. On a GPU those that do not become NaN, and so the loss:
    an error would make the host wait in every step."""
    possible = (target - 0.5).abs() <= 0.5
    if target.device.type == "cpu" and not torch.compiler.is_compiling() and not possible.all():
        raise ValueError(
            f"target must lie from 0 to 1, or be NaN where there is no label, found {target[~possible][0].item():g}; "
            "code the two classes as 0 and 1"
        )
    return torch.where(possible, target, torch.nan)


def _weighted(values: Tensor, weights: Sequence[Tensor | None]) -> Tensor:
    """[losses, ...] values times the weights of each loss, which have the last dimensions of the values, or none."""
    present = [weight for weight in weights if weight is not None]
    if not present:
        return values
    stack = torch.stack(present)
    return values * stack.view(len(stack), *(1 for _ in range(values.ndim - stack.ndim)), *stack.shape[1:])


def mixed(logs: Tensor, rate: Tensor, log_chance: Tensor) -> Tensor:
    """log((1 - rate) exp(logs) + rate * chance)."""
    return torch.logaddexp(logs + torch.log1p(-rate), (rate.log() + log_chance).expand_as(logs))
