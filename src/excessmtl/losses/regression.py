"""A squared error that trusts its targets as far as they deserve.

Residuals are modelled as a mixture of a narrow normal distribution, the good targets, and a broad one, the bad targets.
The gradient of a sample is weighted by the probability that its target is a good one. The gradient of the whole task
is the smaller, the more of the targets' variance remains as error: under normal noise of an unknown variance, the
likelihood divides the squared error by that variance.
"""

import torch
from torch import Tensor, nn

from excessmtl.losses.reduction import check_reduction, filled, reduced

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
_SUMS = ("good", "good_squares", "bad", "bad_squares", "bad_x", "bad_xx", "bad_r", "bad_rx", "x", "xx")


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
    sums: Tensor
    target_variance: Tensor

    def __init__(self, reduction: str = "mean", strength: float | None = None) -> None:
        super().__init__()
        if strength is not None and not 0 <= strength <= 1:
            raise ValueError(f"strength must be from 0 to 1, or None to estimate it, found {strength!r}")
        self.reduction, self.strength = check_reduction(reduction), strength
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("sums", torch.zeros(len(_SUMS)))
        self.register_buffer("target_variance", torch.zeros(()))

    @property
    def noise(self) -> Tensor:
        """The estimated variance of bad targets as a share of the variance of all, a tensor."""
        rate, _, broad = self._mixture(torch.zeros_like(self.steps))
        return (rate * broad / self._variance()).nan_to_num(0.0).clamp(0, 1)

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask`, of the shape of the target: True where the target counts."""
        input, target, counts = filled(input, target, mask)
        squares = (input - target).square()
        with torch.no_grad():
            rate, narrow, broad = self._mixture(torch.where(counts, squares, 0.0).sum() / counts.sum().clamp(min=1))
            odds = (rate / (1 - rate)).log() + 0.5 * (narrow / broad).log() + 0.5 * squares * (1 / narrow - 1 / broad)
            bad = odds.nan_to_num(0.0).sigmoid()
            weights = 1 - self._distrust() * bad * (1 - (narrow / broad).nan_to_num(1.0))
            weights = weights * self._precision()
            if self.training:
                self._observe(input, target, bad, counts)
        return reduced(weights * squares + ((1 - weights) * squares).detach(), counts, self.reduction)

    def _mixture(self, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The share of bad targets, and the variances of the two parts; `present`: the mean square of this batch."""
        sums = dict(zip(_SUMS, self.sums.unbind(), strict=True))
        tiny = torch.finfo(self.sums.dtype).tiny
        good, bad = sums["good"].clamp(min=tiny), sums["bad"].clamp(min=tiny)
        narrow = (sums["good_squares"] / good).clamp(min=tiny)
        broad = torch.maximum(sums["bad_squares"] / bad, 4 * narrow)
        fitted = ((bad / (good + bad)).clamp(0.005, 0.95), narrow, broad)
        # Until there is something to fit: one target in twenty is bad, and the parts are far from each other.
        mean = (sums["good_squares"] + sums["bad_squares"]) / (good + bad)
        mean = torch.where(self.steps > 0, mean, present).clamp(min=tiny)
        first = (torch.full_like(mean, 0.05), mean / 2, 4 * mean)
        return tuple(torch.where(self.steps > _FIRST, *pair) for pair in zip(fitted, first, strict=True))  # type: ignore[return-value]

    def _variance(self) -> Tensor:
        return self.target_variance / (1 - torch.pow(1 - _MEMORY, self.steps))

    def _precision(self) -> Tensor:
        """The factor on the gradients of all samples."""
        sums = dict(zip(_SUMS, self.sums.unbind(), strict=True))
        # Both averages start at zero, and are short of the truth by the same factor.
        error = (sums["good_squares"] + sums["bad_squares"]) / self.target_variance
        factor = _HALF / (_HALF + error.nan_to_num(1.0))
        return factor if self.strength is None else 1 - self.strength * (1 - factor)

    def _distrust(self) -> Tensor:
        """0 to 1."""
        if self.strength is not None:
            return torch.full_like(self.steps, self.strength)
        sums = dict(zip(_SUMS, self.sums.unbind(), strict=True))
        bad = sums["bad"].clamp(min=torch.finfo(self.sums.dtype).tiny)
        mean_x, mean_r = sums["bad_x"] / bad, sums["bad_r"] / bad
        spread = (sums["bad_xx"] / bad - mean_x.square()) * (sums["bad_squares"] / bad - mean_r.square())
        correlation = (sums["bad_rx"] / bad - mean_x * mean_r) / spread.clamp(min=0).sqrt()
        one_sided = mean_r.abs() / (sums["bad_squares"] / bad).sqrt()
        signal = torch.maximum(correlation / _CORRELATED, one_sided / _ONE_SIDED).nan_to_num(0.0).clamp(0, 1)
        noise = self.noise
        known = self.sums.new_ones(()) - torch.pow(1 - _MEMORY, self.steps)
        predicted = sums["xx"] / known - (sums["x"] / known).square()
        explained = (predicted / (predicted + self._mixture(predicted)[1])).nan_to_num(0.0).clamp(0, 1)
        strength = noise.square() / (noise.square() + _SHARE**2)
        return strength * explained * (1 - signal) * (self.steps / _WARM_UP).clamp(max=1)

    def _observe(self, input: Tensor, target: Tensor, bad: Tensor, counts: Tensor) -> None:
        total = counts.sum()
        new = (total > 0).to(self.sums.dtype)
        residuals = torch.where(counts, target - input, 0.0)
        bad = torch.where(counts, bad, 0.0)
        good = torch.where(counts, 1 - bad, 0.0)
        squares, seen = residuals.square(), total.clamp(min=1)
        parts = (good, good * squares, bad, bad * squares)
        slopes = (bad * input, bad * input * input, bad * residuals, bad * residuals * input)
        every = torch.where(counts, input, 0.0)
        means = torch.stack([part.sum() / seen for part in (*parts, *slopes, every, every.square())])
        center = torch.where(counts, target, 0.0).sum() / seen
        variance = torch.where(counts, (target - center).square(), 0.0).sum() / (seen - 1).clamp(min=1)
        usable = new * torch.isfinite(means.sum() + variance)
        self.steps += usable
        self.sums += torch.where(usable > 0, _MEMORY * (means - self.sums), 0.0)
        self.target_variance += torch.where(usable > 0, _MEMORY * (variance - self.target_variance), 0.0)
