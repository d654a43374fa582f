"""Robust losses of a fixed strength, as published. `nn.HuberLoss` is torch's own."""

import torch
from torch import Tensor, nn

from excessmtl.losses.reduction import check_reduction, counted, filled, reduced


class _OfLogits(nn.Module):
    """A loss of logits [batch, classes, ...] and class numbers [batch, ...]."""

    def __init__(self, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__()
        self.ignore_index, self.reduction = ignore_index, check_reduction(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of logits and class numbers."""
        if input.ndim != target.ndim + 1:
            raise ValueError(
                f"input must be [batch, classes, ...] and target class numbers [batch, ...], found shapes "
                f"{list(input.shape)} and {list(target.shape)}"
            )
        target = target.long()  # in a byte -100 would be 156
        counts = target != self.ignore_index
        safe = torch.where(counts, target, 0)
        return reduced(self.losses(input.float().log_softmax(1), safe), counts, self.reduction)

    def losses(self, logs: Tensor, target: Tensor) -> Tensor:
        """One loss for each target from the log-probabilities."""
        raise NotImplementedError


def _at(values: Tensor, target: Tensor) -> Tensor:
    return values.gather(1, target.unsqueeze(1)).squeeze(1)


class GeneralizedCrossEntropy(_OfLogits):
    """(1 - p_y^q) / q (Zhang and Sabuncu, NeurIPS 2018): cross-entropy for q near 0, absolute error for q = 1."""

    def __init__(self, q: float = 0.7, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(ignore_index, reduction)
        if not 0 < q <= 1:
            raise ValueError(f"q must be above 0 and at most 1, found {q!r}")
        self.q = q

    def losses(self, logs: Tensor, target: Tensor) -> Tensor:
        """One loss for each target."""
        return -torch.expm1(self.q * _at(logs, target)) / self.q


class SymmetricCrossEntropy(_OfLogits):
    """alpha CE(y, p) + beta CE(p, y) with log 0 replaced by `log_zero` (Wang et al., ICCV 2019)."""

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        log_zero: float = -4.0,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        if alpha < 0 or beta < 0 or log_zero >= 0:
            raise ValueError(
                f"alpha and beta must be at least 0 and log_zero negative, found {alpha!r}, {beta!r} and {log_zero!r}"
            )
        self.alpha, self.beta, self.log_zero = alpha, beta, log_zero

    def losses(self, logs: Tensor, target: Tensor) -> Tensor:
        """One loss for each target."""
        likelihood = _at(logs, target)
        return -self.alpha * likelihood - self.beta * self.log_zero * (1 - likelihood.exp())


class BootstrappedCrossEntropy(_OfLogits):
    """Cross-entropy with beta y + (1 - beta) p, p the prediction itself, or its class if `hard` (Reed et al., 2015)."""

    def __init__(
        self, beta: float = 0.95, hard: bool = False, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(ignore_index, reduction)
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must be from 0 to 1, found {beta!r}")
        self.beta, self.hard = beta, hard

    def losses(self, logs: Tensor, target: Tensor) -> Tensor:
        """One loss for each target."""
        own = logs.max(1).values if self.hard else (logs.exp() * logs).sum(1)
        return -self.beta * _at(logs, target) - (1 - self.beta) * own


class ForwardCorrectedCrossEntropy(_OfLogits):
    """-log (T' p)_y with T[i, j] the probability that class i is labelled j (Patrini et al., CVPR 2017)."""

    transition: Tensor

    def __init__(self, transition: Tensor, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(ignore_index, reduction)
        transition = torch.as_tensor(transition, dtype=torch.float32)
        square = transition.ndim == 2 and transition.shape[0] == transition.shape[1]
        if not square or (transition < 0).any() or ((transition.sum(1) - 1).abs() > 1e-3).any():
            raise ValueError(
                f"transition must be a square matrix of probabilities whose rows sum to 1, found {transition}"
            )
        self.register_buffer("transition", transition)

    def losses(self, logs: Tensor, target: Tensor) -> Tensor:
        """One loss for each target."""
        noisy = torch.einsum("ij,bi...->bj...", self.transition, logs.exp())
        return -_at(noisy.clamp(min=torch.finfo(noisy.dtype).tiny).log(), target)


def estimate_transition(probabilities: Tensor, labels: Tensor, confident: float = 0.25) -> Tensor:
    """T from held-out predictions [n, classes] and their noisy labels [n], for `ForwardCorrectedCrossEntropy`.

    Row i counts the labels of the `confident` share of the samples that are predicted i with the highest probability.
    A class that is never predicted gets a row without noise.
    """
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1]:
        raise ValueError(
            f"probabilities must be [n, classes] and labels [n], found {list(probabilities.shape)} and "
            f"{list(labels.shape)}"
        )
    if not 0 < confident <= 1:
        raise ValueError(f"confident must be above 0 and at most 1, found {confident!r}")
    classes = probabilities.shape[1]
    confidence, predicted = probabilities.max(1)
    transition = torch.eye(classes, device=probabilities.device)
    for predicted_class in range(classes):
        mine = (predicted == predicted_class).nonzero()[:, 0]
        if len(mine):
            surest = mine[confidence[mine].argsort(descending=True)[: max(1, round(confident * len(mine)))]]
            transition[predicted_class] = torch.bincount(labels[surest], minlength=classes).float() / len(surest)
    return transition


class GeneralRobustLoss(nn.Module):
    """Barron's general loss of a residual (CVPR 2019): alpha 2 is the squared error, 1 Charbonnier, 0 Cauchy, -2 Geman.

    Args:
        alpha: the smaller, the less an outlier counts.
        scale: residuals well below it are treated as by the squared error.
        reduction: "mean" (over the targets that are not NaN), "sum" or "none".
    """

    def __init__(self, alpha: float = 1.0, scale: float = 1.0, reduction: str = "mean") -> None:
        super().__init__()
        if not scale > 0:
            raise ValueError(f"scale must be positive, found {scale!r}")
        self.alpha, self.scale, self.reduction = alpha, scale, check_reduction(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of predictions and targets of one shape."""
        counts = counted(input, target, None)
        input, target = filled(input, target, counts)
        squares = ((input - target) / self.scale).square()
        return reduced(self._losses(squares), counts, self.reduction)

    def _losses(self, squares: Tensor) -> Tensor:
        if self.alpha == 2:
            return squares / 2
        if self.alpha == 0:
            return torch.log1p(squares / 2)
        if self.alpha == -torch.inf:
            return -torch.expm1(-squares / 2)
        distance = abs(self.alpha - 2)
        return distance / self.alpha * ((squares / distance + 1) ** (self.alpha / 2) - 1)
