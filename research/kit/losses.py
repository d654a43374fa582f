"""The losses of one task in all runs: factors on the gradients of samples, and the values that the rules see."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from research.kit.configs import Config

_MEMORY = 0.02
_RAMP = 100
"""Steps over which the robust losses take effect."""
_CAP = 0.8
"""Largest noise rate that the correction reckons with."""
_LEAST = 0.1
"""Of a corrected cross-entropy at least this share remains when the entropy of the noise is taken away."""
_FIRST = 20
"""The mixture is fitted from this step on."""
_HILL = 0.1
"""Share of the targets' variance at which bad targets are distrusted half."""
_SIGNAL = 0.25
"""Where suspicious residuals correlate with the prediction this much, they are signal."""
_ONE_SIDED = 0.5
"""The same where their mean is this large, over their root mean square."""
_SUMS = ("bad", "bad_x", "bad_xx", "bad_r", "bad_rx", "good", "good_squares", "bad_squares", "x", "xx")


class Losses(NamedTuple):
    """Of one batch."""

    plain: Tensor
    """[runs, batch], differentiable."""
    factors: Tensor | None
    """[runs, batch] on the gradients; None: 1."""
    values: Tensor
    """[runs] mean losses, as the rule sees them."""


class Classification:
    """Cross-entropy, or its forward correction: the label y has probability (1 - e) p + e f_y at a noise rate e."""

    def __init__(self, runs: int, config: Config, classes: int) -> None:
        self.classes, self._config = classes, config
        self.noise = torch.zeros(runs)
        """Running error of the most confident quarter, above chance."""
        self._rate = torch.zeros(runs)

    def __call__(self, outputs: Tensor, labels: Tensor, step: int) -> Losses:
        """Outputs [runs, batch, classes], labels [runs, batch]."""
        logs = F.log_softmax(outputs, -1)
        plain = -logs.gather(-1, labels[..., None])[..., 0]
        if not self._config.robust:
            return Losses(plain, None, plain.detach().mean(-1))
        with torch.no_grad():
            self._observe(logs, labels, step)
            rate = (self._rate.clamp(max=_CAP) * min(step / _RAMP, 1))[:, None]
            counts = F.one_hot(labels, self.classes).sum(-2).float()
            frequencies = (counts + 1) / (labels.shape[-1] + self.classes)
            right, wrong = (-plain).exp() * (1 - rate), rate * frequencies.gather(-1, labels)
            values = -torch.log(right + wrong).mean(-1)
            if not self._config.entropy:
                values = torch.maximum(values - noise_entropy(rate, frequencies), _LEAST * values)
            return Losses(plain, right / (right + wrong), values)

    def _observe(self, logs: Tensor, labels: Tensor, step: int) -> None:
        confidence, predicted = logs.max(-1)
        surest = confidence.topk(max(1, labels.shape[-1] // 4), -1).indices
        errors = (predicted != labels).float().gather(-1, surest).mean(-1)
        self.noise += _MEMORY * ((errors * self.classes / (self.classes - 1)).clamp(max=1) - self.noise)
        present = self.noise / (1 - (1 - _MEMORY) ** step)
        # The rate rises at once, and falls by a share 1/t at step t.
        fallen = self._rate + (present - self._rate) / step
        self._rate = torch.maximum(fallen, present) if step > _RAMP else present


def noise_entropy(rate: Tensor, frequencies: Tensor) -> Tensor:
    """[runs] what a perfect prediction loses: the entropy of labels that are redrawn at a rate, mean over the classes.

    The rate is [runs, 1], the frequencies are [runs, classes].
    """
    kept = 1 - rate + rate * frequencies
    changed = rate * frequencies
    others = torch.special.entr(changed).sum(-1, keepdim=True) - torch.special.entr(changed)
    entropy: Tensor = (frequencies * (torch.special.entr(kept) + others)).sum(-1)
    return entropy


class Regression:
    """Squared error; where `robust`, a sample's gradient counts as far as its target seems good.

    Residuals are a mixture of a narrow normal distribution, good targets, and a broad one, bad targets. Distrust is
    less where bad targets explain little of the variance, where little is predicted, and where suspicious residuals
    follow the prediction or lie on one side. The rule sees the plain loss.
    """

    def __init__(self, runs: int, config: Config, _: int) -> None:
        zeros = torch.zeros(runs)
        self.noise = zeros.clone()
        """The share of the targets' variance that bad targets explain."""
        self._bad_rate, self._narrow, self._broad, self._variance = zeros + 0.05, zeros, zeros, zeros + 1
        self._sums = {name: zeros.clone() for name in _SUMS}
        self._loss = zeros.clone()
        self._config = config

    def __call__(self, outputs: Tensor, targets: Tensor, step: int) -> Losses:
        """Outputs [runs, batch, 1], targets [runs, batch]."""
        residuals = targets - outputs[..., 0]
        squares = residuals * residuals
        with torch.no_grad():
            values = squares.mean(-1)
            if not self._config.robust:
                return Losses(squares, None, values)
            if step == 1:
                self._narrow, self._broad = values * 0.5, values * 4
            self._variance = self._variance + _MEMORY * (targets.var(-1) - self._variance)
            good_odds = torch.log(1 - self._bad_rate) - 0.5 * torch.log(self._narrow)
            bad_odds = torch.log(self._bad_rate) - 0.5 * torch.log(self._broad)
            spread = 0.5 * squares / self._broad[:, None] - 0.5 * squares / self._narrow[:, None]
            good = torch.sigmoid((good_odds - bad_odds)[:, None] + spread)
            self._observe(outputs[..., 0], residuals, squares, good, step)
            share = self._bad_rate * self._broad / self._variance.clamp(min=1e-6)
            self.noise = share.clamp(0, 1)
            distrust = self._distrust(self.noise, step)
            factors = 1 - distrust[:, None] * (1 - good) * (1 - self._narrow / self._broad)[:, None]
            return Losses(squares, factors * self._precision(values, step)[:, None], values)

    def _observe(self, outputs: Tensor, residuals: Tensor, squares: Tensor, good: Tensor, step: int) -> None:
        bad = 1 - good
        with_outputs = (bad, bad * outputs, bad * outputs * outputs, bad * residuals, bad * residuals * outputs)
        mixture = (good, good * squares, bad * squares)
        for name, value in zip(_SUMS, (*with_outputs, *mixture, outputs, outputs * outputs), strict=True):
            self._sums[name] += _MEMORY * (value.mean(-1) - self._sums[name])
        if step > _FIRST:
            all_bad, all_good = self._sums["bad"], self._sums["good"]
            self._bad_rate = (all_bad / (all_bad + all_good).clamp(min=1e-6)).clamp(0.005, 0.95)
            self._narrow = (self._sums["good_squares"] / all_good.clamp(min=1e-6)).clamp(min=1e-6)
            self._broad = torch.maximum(self._sums["bad_squares"] / all_bad.clamp(min=1e-6), 4 * self._narrow)

    def _precision(self, values: Tensor, step: int) -> Tensor:
        """A factor on the gradients of all samples, 1 where the loss is a small part of the variance."""
        half = self._config.precision
        self._loss += _MEMORY * (values - self._loss)
        share = self._loss / (1 - (1 - _MEMORY) ** step) / self._variance.clamp(min=1e-6)
        return half / (half + share.clamp(max=1)) if half else torch.ones_like(share)

    def _distrust(self, share: Tensor, step: int) -> Tensor:
        sums, bad = self._sums, self._sums["bad"].clamp(min=1e-8)
        mean_x, mean_r = sums["bad_x"] / bad, sums["bad_r"] / bad
        covariance = sums["bad_rx"] / bad - mean_r * mean_x
        variance = (sums["bad_xx"] / bad - mean_x**2).clamp(min=1e-6)
        square = (sums["bad_squares"] / bad).clamp(min=1e-12)
        correlation = covariance / (variance * (square - mean_r**2).clamp(min=1e-12)).sqrt()
        signal = torch.maximum(correlation / _SIGNAL, mean_r.abs() / square.sqrt() / _ONE_SIDED).clamp(0, 1)
        known = 1 - (1 - _MEMORY) ** step
        predicted = (sums["xx"] / known - (sums["x"] / known) ** 2).clamp(min=0)
        kept = predicted / (predicted + self._narrow) * (1 - signal)
        return share**2 / (share**2 + _HILL**2) * kept * min(step / _RAMP, 1)
