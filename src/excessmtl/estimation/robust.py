"""Excess risk from the gradient's signal over its noise, sample against sample.

Eq. 6 of the ExcessMTL paper, excess risk = 1/2 mu' H^-1 mu, is about the *population* gradient mu. A mini-batch
gradient g has E[g^2] = mu^2 + sigma^2 / B, and for a task with noisy labels sigma never dies: put g in place of mu
and the noise is counted as excess risk. Two changes repair that:

    U = ((sum_b g_b)^2 - sum_b g_b^2) / (B (B - 1))     the mean product of two different samples' gradients
    F = (1/B) sum_b g_b^2                               the per-sample Fisher, in place of H

U is unbiased for mu^2 (and may be negative), because label noise and memorised samples pull in directions of their
own and cancel between samples. The score S = 1/2 sum_k U_k / (F_k + damping), from exponential averages of U and F,
has no unit: rescaling a loss does not change it.

From there to units of the loss: for squared error with noise of variance v, the excess risk e enters as S = e / (2 v),
and the loss is r = v + e. So the share of the loss that training can still remove is e / r = 2 S / (1 + 2 S), and the
estimate is that share of the loss. For other losses it is an approximation with the right unit, the right sign and the
right limits: nothing where there is no signal, all of the loss where there is no noise. Correlated coordinates are
counted more than once in S, which makes the estimate too large far from the optimum. `docs/estimators.md` has how it
compares with the true excess risk.
"""

import torch
from torch import Tensor

from excessmtl.estimation.adapter import Moments


def pair_signal(moments: Moments) -> Tensor:
    """U, per task and coordinate. Needs two samples; without them the value means nothing."""
    count = moments.count[:, None, None].clamp(min=2)
    return (moments.first.square() - moments.second) / (count * (count - 1))


def fisher(moments: Moments) -> Tensor:
    """F, per task and coordinate."""
    return moments.second / moments.count[:, None, None].clamp(min=1)


def signal_to_noise(signal: Tensor, noise: Tensor, damping: float) -> Tensor:
    """S [m] from averages of U and F, at least zero.

    `damping`: share of the mean of F added to each coordinate. Coordinates that were never used do not count.
    """
    used = (noise > 0).sum(dim=(1, 2), keepdim=True).clamp(min=1)
    floor = damping * noise.sum(dim=(1, 2), keepdim=True) / used
    ratio = torch.where(noise > 0, signal / (noise + floor), 0)
    return (0.5 * ratio.sum(dim=(1, 2))).clamp(min=0)


def reducible_share(score: Tensor) -> Tensor:
    """The share of the loss that is excess risk, from S."""
    return 2 * score / (1 + 2 * score)
