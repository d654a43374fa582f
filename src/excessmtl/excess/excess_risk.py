"""Excess risk from the gradient's signal over its noise, sample against sample.

Eq. 6 of the ExcessMTL paper, excess risk = 1/2 mu' H^-1 mu, is about the *population* gradient mu. A mini-batch
gradient g has E[g^2] = mu^2 + sigma^2 / B, and for a task with noisy labels sigma never dies: put g in place of mu
and the noise is counted as excess risk. Two changes repair that:

    U = ((sum_b g_b)^2 - sum_b g_b^2) / (B (B - 1))     the mean product of two different samples' gradients
    F = (1/B) sum_b g_b^2                               the per-sample Fisher, in place of H

U is unbiased for mu^2 (and may be negative), because label noise and memorised samples pull in directions of their
own and cancel between samples.

From there to units of the loss. Take a linear readout of independent features with squared error: it is off by d_j in
feature j, the loss is r, and g_b = 2 (residual of b) z_bj w_k. Then U_jk / F_jk is d_j^2 E[z_j^2] / r whatever the
output k, and the excess risk sum_j d_j^2 E[z_j^2] is the loss times

    sum_j  (sum_k U_jk) / (sum_k F_jk + damping)

the share of the loss that training can still remove. It has no unit, and it is estimated with exponential averages of
both sums. Elsewhere it is an approximation: features that go together are counted more than once (the share is kept
below one), and several outputs are averaged instead of added. `docs/estimators.md` has how it compares with the truth.
"""

import torch
from torch import Tensor

from excessmtl.excess.adapter import Moments


def pair_signal(moments: Moments) -> Tensor:
    """U summed over k: [m, width + 1]. Needs two samples; without them the value means nothing."""
    return (moments.power - moments.second) / (1 - moments.count.reciprocal()).unsqueeze(1)


def reducible_share(signal: Tensor, noise: Tensor, damping: float) -> Tensor:
    """[m] the share of the loss that is excess risk, from averages of U and F, both summed over k.

    `damping`: share of the mean of F added to each coordinate. Coordinates that were never used do not count.
    """
    used: Tensor = torch.linalg.vector_norm(noise, 0, dim=1, keepdim=True)  # how many are not zero
    damped = torch.addcdiv(noise, noise.sum(1, keepdim=True), used, value=damping)
    # Where nothing was used there is no signal either: zero over zero.
    return (signal / damped).sum(1).nan_to_num(0).clamp(0, 1)
