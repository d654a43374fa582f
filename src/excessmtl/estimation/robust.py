"""A robust excess-risk score: the gradient's signal over its noise, sample against sample.

Eq. 6 of the ExcessMTL paper, excess risk = 1/2 mu' H^-1 mu, is about the *population* gradient mu. A mini-batch
gradient g has E[g^2] = mu^2 + sigma^2 / B, and for a task with noisy labels sigma never dies: put g in place of mu
and the noise is counted as excess risk. Two changes repair that:

    U = ((sum_b g_b)^2 - sum_b g_b^2) / (B (B - 1))     the mean product of two different samples' gradients
    F = (1/B) sum_b g_b^2                               the per-sample Fisher, in place of H

U is unbiased for mu^2 (and may be negative), because label noise and memorised samples pull in directions of their
own and cancel between samples. The score is E = 1/2 sum_k U_k / (F_k + damping), from exponential averages of U and
F. It does not change when a loss is rescaled, so no scale processing or warm-up is needed.

What it is: for a calibrated log-likelihood, F is the Hessian near the optimum and E estimates the excess risk in
nats. What it is not: for squared error it is about (excess risk) / (2 sigma^2), which need not vanish for a task
without noise; and correlated coordinates are counted more than once. It is a score to weigh tasks by.
"""

import torch
from torch import Tensor

from excessmtl.estimation.adapter import Moments

_SMALLEST = 1e-6


def pair_signal(moments: Moments) -> Tensor:
    """U, per task and coordinate. Needs two samples; without them the value means nothing."""
    count = moments.count[:, None, None].clamp(min=2)
    return (moments.first.square() - moments.second) / (count * (count - 1))


def fisher(moments: Moments) -> Tensor:
    """F, per task and coordinate."""
    return moments.second / moments.count[:, None, None].clamp(min=1)


def signal_to_noise(signal: Tensor, noise: Tensor, damping: float) -> Tensor:
    """E [m] from averages of U and F, never below a small positive number.

    `damping`: share of the mean of F added to each coordinate. Coordinates that were never used do not count.
    """
    used = (noise > 0).sum(dim=(1, 2), keepdim=True).clamp(min=1)
    floor = damping * noise.sum(dim=(1, 2), keepdim=True) / used
    ratio = torch.where(noise > 0, signal / (noise + floor), 0)
    return (0.5 * ratio.sum(dim=(1, 2))).clamp(min=_SMALLEST)
