"""A squared error that trusts its targets as far as they deserve.

Residuals are modelled as a mixture of a narrow normal distribution, the good targets, and a broad one, the bad targets.
The gradient of a sample is weighted by the probability that its target is a good one. The gradient of the whole task
is the smaller, the more of the targets' variance remains as error: under normal noise of an unknown variance, the
likelihood divides the squared error by that variance.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from excessmtl.losses.reduction import check_reduction, filled, reduced
from excessmtl.tensors import is_finite

_MEMORY = 0.02
"""How fast the estimates follow a batch."""
_WARM_UP = 100
"""Over so many first batches the effect rises to its full size."""
_FIRST = 20
"""The mixture is fitted from this batch on."""
_SHARE = 0.1
"""Bad targets that make up this share of the variance of all targets are distrusted half."""
_CORRELATED = 0.25
"""Where suspicious residuals correlate with the prediction this much, they are signal, not noise."""
_ONE_SIDED = 0.5
"""The same where their mean is this large, over their root mean square."""
_HALF = 0.3
"""A task whose error is this share of the variance of its targets has half the gradient."""
_TINY = 1e-30
"""In place of zero in a denominator; the largest fp32 number times it is finite."""


class RobustMSELoss(nn.Module):
    """`nn.MSELoss` with a gradient that gives way where targets look wrong.

    Its *value* is the plain squared error, so that weighting methods see plain risks. Only the gradient changes. All
    of it is multiplied by 0.3 / (0.3 + the share of the variance of the targets that remains as error). And it becomes
    smaller where a target looks wrong:

    - A residual is suspicious when it belongs to the broad part of the mixture.
    - Suspicion counts only where the broad part explains a good share of the variance of the targets. Small residuals
      are not noise.
    - It does not count where the suspicious residuals grow with the prediction. Such targets are rare and large but
      can be predicted, and the network has not learned them yet.
    - It does not count where the suspicious residuals lie on one side: rare values on a scale are no noise either.
    - It counts less where predictions vary less than good targets do about them. A network that knows little cannot
      tell a wrong target from one it does not understand.

    Use one for each task; all elements of the target are in one unit. In `eval()` mode it learns nothing. NaN targets
    do not count.

    Args:
        reduction: "mean" (over the elements that count), "sum" or "none".
        strength: how much of all this takes effect, 0 (the plain loss) to 1. None: distrust follows the noise.
    """

    steps: Tensor
    moments: Tensor
    """[2, 6] moving averages over all targets, and over bad ones, of 1, x, x^2, r, r^2 and r x: x is the prediction,
    from the mean of the targets, and r the residual."""

    def __init__(self, reduction: str = "mean", strength: float | None = None) -> None:
        super().__init__()
        if strength is not None and not 0 <= strength <= 1:
            raise ValueError(f"strength must be from 0 to 1, or None to estimate it, found {strength!r}")
        self.reduction, self.strength = check_reduction(reduction), strength
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("moments", torch.zeros(2, 6))

    @property
    def noise(self) -> Tensor:
        """The estimated variance of bad targets as a share of the variance of all, a tensor."""
        return torch.where(self.steps > 0, self._seen().noise, 0.0)

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask`, of the shape of the target: True where the target counts."""
        input, target, counts = filled(input, target, mask)
        squares = (target - input).square()
        with torch.no_grad():
            seen = self._seen()
            bad = torch.addcmul(seen.odds, seen.odds_slope, squares).sigmoid()
            weights = torch.addcmul(seen.precision, bad, seen.distrust * seen.precision, value=-1)
            if self.training:
                self._observe(input, target, bad * counts, counts)
        # The value is that of `squares`, the gradient is that of `weights * squares`.
        return reduced(torch.lerp(squares.detach(), squares, weights), counts, self.reduction)

    def _seen(self) -> "_Seen":
        """What the moments say. Before the first batch they are zero, and all of the variance is error."""
        # Averages that start at zero are short of the truth by the first of them, the average of 1.
        of_all, of_bad = (self.moments / self.moments[0, 0].clamp(min=_TINY)).unbind()
        _, x, xx, _, error, rx = of_all.unbind()
        error = error.clamp(min=_TINY)
        share = of_bad[0].clamp(min=_TINY)
        _, mean_x, mean_xx, mean_r, mean_rr, mean_rx = (of_bad / share).unbind()
        narrow = ((error - of_bad[4]) / (1 - share).clamp(min=_TINY)).clamp(min=_TINY)
        broad = torch.maximum(mean_rr, 4 * narrow)
        # Until there is something to fit: one target in twenty is bad, and the parts are far from each other.
        fitted = torch.stack((share.clamp(0.005, 0.95), narrow, broad))
        first = torch.stack((torch.full_like(error, 0.05), error / 2, 4 * error))
        rate, narrow, broad = torch.where(self.steps > _FIRST, fitted, first).unbind()
        variance = (xx + 2 * rx + error).clamp(min=_TINY)
        noise = (rate * broad / variance).clamp(0, 1)
        correlation = (mean_rx - mean_x * mean_r) / ((mean_xx - mean_x**2) * (mean_rr - mean_r**2)).clamp(min=0).sqrt()
        one_sided = mean_r.abs() / mean_rr.sqrt()
        signal = torch.maximum(correlation / _CORRELATED, one_sided / _ONE_SIDED).nan_to_num(0.0).clamp(0, 1)
        predicted = (xx - x**2).clamp(min=0)
        explained = predicted / (predicted + narrow)
        squared = noise * noise
        strength = squared / (squared + _SHARE**2) * explained * (1 - signal) * (self.steps / _WARM_UP).clamp(max=1)
        precision = variance / (variance + error / _HALF)
        if self.strength is not None:
            strength = torch.full_like(strength, self.strength)
            precision = 1 - self.strength * (1 - precision)
        apart = narrow / broad
        odds = rate.logit() + 0.5 * apart.log()
        return _Seen(noise, odds, 0.5 * (1 - apart) / narrow, strength * (1 - apart), precision)

    def _observe(self, input: Tensor, target: Tensor, bad: Tensor, counts: Tensor) -> None:
        total = counts.sum()
        center = target.sum() / total
        x, r = (input - center).flatten(), (target - input).flatten()
        kinds = torch.stack((counts.flatten().to(x.dtype), bad.flatten()))
        features = torch.stack((torch.ones_like(x), x, x * x, r, r * r, r * x))
        # Not as a product of matrices, which autocast would take in half precision.
        means = (kinds.unsqueeze(1) * features).sum(2) / total
        usable = is_finite(means.sum())  # not where nothing counts: zero over zero
        self.moments.lerp_(torch.where(usable, means, self.moments), _MEMORY)
        self.steps += usable


class _Seen(NamedTuple):
    """What the moments say, scalars."""

    noise: Tensor
    odds: Tensor
    """Logarithm of the odds of being bad, for a target that fits..."""
    odds_slope: Tensor
    """...and how much it rises with the squared residual."""
    distrust: Tensor
    """The share of its gradient that a bad target loses."""
    precision: Tensor
    """The factor on all gradients."""
