"""A squared error that trusts its targets as far as they deserve.

Residuals are modelled as a mixture of a narrow normal distribution, the good targets, and a broad one, the bad targets.
The gradient of a sample is weighted by the probability that its target is a good one. The gradient of the whole task
is the smaller, the more of the targets' variance remains as error, and the more of it is bad targets: under normal
noise of an unknown variance, the likelihood divides the squared error by that variance.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from excessmtl.losses.estimate import Estimate, State, stacked
from excessmtl.losses.reduction import broadcast, check_reduction, check_shapes, counted, filled, reduced
from excessmtl.losses.together import Entries, Lesson, StackableLoss
from excessmtl.tensors import is_finite

_MEMORY = 0.02
"""How fast the estimates follow a batch; at first faster."""
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
_CONTRAST = 3.0
"""How much less a task counts, in the exponent, all of whose variance is bad targets: an error may be learned yet."""
_UNUSUAL = 8.0
"""A batch whose error is more than so many times the usual one counts less."""
_TINY = 1e-30
"""In place of zero in a denominator; the largest fp32 number times it is finite."""


class RobustMSELoss(Estimate, StackableLoss):
    """`nn.MSELoss` with a gradient that gives way where targets look wrong.

    Its *value* is the plain squared error, so that weighting methods see plain risks. Only the gradient changes. All
    of it is multiplied by 0.3 / (0.3 + the share, at most 1, of the variance of the targets that remains as error), and
    by exp(-3 `noise`). And it becomes smaller where a target looks wrong:

    - A residual is suspicious when it belongs to the broad part of the mixture.
    - Suspicion counts only where the broad part explains a good share of the variance of the targets. Small residuals
      are not noise.
    - It does not count where the suspicious residuals grow with the prediction. Such targets are rare and large but
      can be predicted, and the network has not learned them yet.
    - It does not count where the suspicious residuals lie on one side: rare values on a scale are no noise either.
    - It counts less where predictions vary less than good targets do about them. A network that knows little cannot
      tell a wrong target from one it does not understand.

    Targets need not be standardised: an error larger than the variance of the targets is the network's, and not noise.
    One bad batch is forgotten within about 100 steps; a batch with NaN or infinite numbers does not count.

    Use one for each task; all elements of the target are in one unit. It learns nothing in `eval()` mode or where
    gradients are off. NaN targets do not count.

    Args:
        reduction: "mean" (over the elements that count), "sum" or "none".
        strength: how much of all this takes effect, 0 (the plain loss) to 1. None: distrust follows the noise.
        pool: whether all processes of `torch.distributed` make one estimate. Then each of them has to call the loss in
            every step; one without labels passes NaN targets.
    """

    steps: Tensor
    center: Tensor
    """The mean of the targets."""
    typical: Tensor
    """Logarithm of the mean squared residual of a usual batch: an average of logarithms."""
    moments: Tensor
    """[2, 7] averages over good targets, and over bad ones, of 1, r, x, r x, x^2, r^2 and y^2: r is the residual, x the
    prediction from the mean of the batch's targets, and y the target from `center`. Good and bad ones apart, since
    a difference of sums would be lost beside one outlier."""

    def __init__(self, reduction: str = "mean", strength: float | None = None, pool: bool = True) -> None:
        super().__init__(pool, steps=(), center=(), typical=(), moments=(2, 7))
        if strength is not None and not 0 <= strength <= 1:
            raise ValueError(f"strength must be from 0 to 1, or None to estimate it, found {strength!r}")
        self.reduction, self.strength = check_reduction(reduction), strength

    @property
    def noise(self) -> Tensor:
        """The estimated variance of bad targets as a share of the variance of all, a tensor."""
        return torch.where(self.steps > 0, self.facts(stacked([self])).noise[0], 0.0)

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask`, of the shape of the target: True where the target counts."""
        counts = counted(input, target, mask)
        return reduced(self.alone(input, target, counts), counts, self.reduction)

    def alike(self, shape: torch.Size, target: Tensor) -> Hashable:
        """The options, and what is learned from."""
        check_shapes(shape, target.shape)
        return self.strength, self.pool, self.training

    @classmethod
    def entries(cls, losses: Sequence[Self], input: Tensor, target: Tensor, counts: Tensor) -> Entries:
        """The squared errors, with the gradient of the weighted ones."""
        first = losses[0]
        input, target = filled(input, target, counts)
        squares = (target - input).square()
        with torch.no_grad():
            seen = _Seen(*(broadcast(fact, squares) for fact in first.facts(stacked(losses))))
            bad = torch.addcmul(seen.odds, seen.odds_slope, squares).sigmoid()
            weights = torch.addcmul(seen.precision, bad, seen.distrust * seen.precision, value=-1)
            batch = tuple(values.flatten(1) for values in (input.detach(), target, bad * counts, counts))
        # The value is that of `squares`, the gradient is that of `weights * squares`.
        return torch.lerp(squares.detach(), squares, weights), Lesson(losses, batch) if first.learns else None

    @torch.no_grad()
    def facts(self, state: State) -> "_Seen":
        """What the moments of several losses say. Before the first batch, all of the variance is error."""
        good, bad = state["moments"].unbind(1)
        groups = torch.stack((good + bad, bad, good), 1)
        groups = groups / groups[..., :1].clamp(min=_TINY)
        _, r, x, rx, xx, rr, yy = groups[:, :2].unbind(-1)  # [estimates, 2]: of all, and of bad
        spread = torch.addcmul(xx, x, x, value=-1).clamp(min=0)
        predicted = spread[:, 0]
        variance, error, narrow = torch.stack((yy[:, 0], rr[:, 0], groups[:, 2, 5])).clamp(min=_TINY).unbind()
        broad = torch.maximum(rr[:, 1], 4 * narrow)
        # Until there is something to fit: one target in twenty is bad, and the parts are far from each other.
        early = state["steps"] <= _FIRST
        rate = torch.where(early, 0.05, bad[:, 0].clamp(0.005, 0.95))
        narrow, broad = torch.where(early, error / 2, narrow), torch.where(early, 4 * error, broad)
        noise = (rate * broad / variance).clamp(0, 1)
        products = spread * torch.addcmul(rr, r, r, value=-1)
        correlation = (torch.addcmul(rx, x, r, value=-1) / products.clamp(min=0).sqrt())[:, 1]
        one_sided = (r.abs() / rr.sqrt())[:, 1]
        signal = torch.maximum(correlation / _CORRELATED, one_sided / _ONE_SIDED).nan_to_num(0.0).clamp(0, 1)
        explained = predicted / (predicted + narrow)
        squared = noise * noise
        strength = squared / (squared + _SHARE**2) * explained * (1 - signal) * (state["steps"] / _WARM_UP).clamp(max=1)
        # The mean of the targets has an error of the variance: a larger one is of the network, not of noise.
        usual = torch.minimum(error, variance)
        precision = variance / (variance + usual / _HALF) * (-_CONTRAST * noise * usual / error).exp()
        if self.strength is not None:
            strength = torch.full_like(strength, self.strength)
            precision = 1 - self.strength * (1 - precision)
        close = narrow / broad
        apart = 1 - close
        odds = rate.logit() + 0.5 * close.log()
        return _Seen(noise, odds, 0.5 * apart / narrow, strength * apart, precision)

    def learned(self, state: State, *batch: Tensor) -> State:
        """The states after a batch: predictions, targets, how bad each is, and whether it counts, [estimates, n]."""
        input, target, bad, counts = batch
        total, all_targets = self.pooled(torch.stack((counts.sum(1), target.sum(1)))).unbind()
        mean = all_targets / total
        x, y, r = input - mean[:, None], target - mean[:, None], target - input
        kinds = torch.stack((counts.to(bad.dtype) - bad, bad), 1).unsqueeze(2)
        features = torch.stack((torch.ones_like(x), r, x, r * x, x * x, r * r, y * y), 1).unsqueeze(1)
        # Not as a product of matrices, which autocast would take in half precision.
        means = self.pooled((kinds * features).sum(3)) / total[:, None, None]
        usable = is_finite(means.sum((1, 2)))  # not where nothing counts: zero over zero
        means = torch.where(usable[:, None, None], means, 0.0)
        mean = torch.where(usable, mean, state["center"])
        moved = mean - state["center"]
        share, typical = _share_of_batch(means[..., 5].sum(1), usable, state)
        # A batch of one target has no variance but that between batches. The first batch makes the center.
        means[..., 6] += (moved * moved * (1 - share))[:, None] * means[..., 0]
        return {
            "steps": state["steps"] + usable,
            "center": torch.lerp(state["center"], mean, share),
            "typical": typical,
            "moments": torch.lerp(state["moments"], means, share[:, None, None]),
        }

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        saved = state_dict.get(f"{prefix}moments")
        if saved is not None and saved.shape != self.moments.shape:
            raise ValueError(
                f"{prefix}moments has shape {list(saved.shape)}, not {list(self.moments.shape)}: the state is of an "
                "earlier version of RobustMSELoss, which estimated other things; leave its entries out of the state "
                "and load the others with strict=False, the loss learns its estimates anew within about 100 steps"
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _share_of_batch(error: Tensor, usable: Tensor, state: State) -> tuple[Tensor, Tensor]:
    """[estimates] the share of a batch in the averages, less if its error is unusual, more if theirs is; what is usual.

    One bad batch, the first one too, would else outweigh hundreds of others.
    """
    memory = (2 / (state["steps"] + 2)).clamp(min=_MEMORY) * usable
    errors = torch.stack((error, state["moments"][..., 5].sum(1)))
    typical = torch.lerp(state["typical"], error.clamp(min=_TINY).log(), memory)
    both = (_UNUSUAL * typical.exp() / errors).clamp(max=1) * torch.stack((memory, 1 - memory))
    return both[0] / both.sum(0), typical


class _Seen(NamedTuple):
    """What the moments say, [losses]."""

    noise: Tensor
    odds: Tensor
    """Logarithm of the odds of being bad, for a target that fits..."""
    odds_slope: Tensor
    """...and how much it rises with the squared residual."""
    distrust: Tensor
    """The share of its gradient that a bad target loses."""
    precision: Tensor
    """The factor on all gradients."""
