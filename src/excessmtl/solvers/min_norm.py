"""The shortest vector in the convex hull of the task gradients: min over the simplex of w.M w (M their Gram).

`min_norm` is exact to rounding; `frank_wolfe` is the solver of the MGDA paper, slow near the optimum.
Both give zero weight to tasks that are not ok, and all zeros when none is.
"""

import torch
from torch import Tensor

from excessmtl.solvers.conditioning import normalized, precise
from excessmtl.solvers.interior_point import minimize


def min_norm(gram: Tensor, ok: Tensor) -> Tensor:
    """Weights that satisfy the optimality conditions (M w)_j >= w.M w for all j, with equality where w_j > 0.

    Works on cosines: with x_i = w_i |g_i| the objective has a unit diagonal however long the gradients are.
    """
    cosines, lengths, active = normalized(gram, ok)
    if len(gram) == 2:
        weights = _two(cosines, lengths, active)
    else:
        # Below the rounding of M; keeps the system regular where gradients are linearly dependent.
        cosines = cosines + torch.diag_embed(torch.full_like(lengths, torch.finfo(gram.dtype).eps))
        prices = torch.where(active, torch.where(active, lengths, torch.inf).min() / lengths, 0)
        weights = prices * minimize(lambda x: (cosines @ x, cosines), prices, active)
    # A zero gradient is itself the shortest vector.
    weights = torch.where((ok & ~active).any(), (ok & ~active).to(weights), weights)
    return (weights / weights.sum().clamp(min=torch.finfo(gram.dtype).tiny)).to(gram.dtype)


def _two(cosines: Tensor, lengths: Tensor, active: Tensor) -> Tensor:
    """w_1 = clip(g_2.(g_2 - g_1) / |g_1 - g_2|^2), Sener & Koltun Eq. 5; equal where the gradients are."""
    (first, second), cosine = lengths.unbind(), cosines[0, 1]
    distance = (first - second).square() + 2 * first * second * (1 - cosine)
    share = second * (second - first * cosine) / torch.where(distance > 0, distance, 1)
    share = torch.where(distance > 0, share.clamp(0, 1), 0.5)
    return torch.where(active.all(), torch.stack((share, 1 - share)), active.to(lengths))


def frank_wolfe(gram: Tensor, ok: Tensor, iterations: int = 250) -> Tensor:
    """Sener & Koltun 2018, Algorithm 2: towards the best vertex, with the best step, from equal weights."""
    matrix = torch.where(ok[:, None] & ok, precise(gram), 0)
    weights = ok.to(matrix) / ok.sum().clamp(min=1)
    tasks = torch.arange(len(gram), device=gram.device)
    for _ in range(iterations):
        slope = matrix @ weights
        towards = (tasks == torch.where(ok, slope, torch.inf).argmin()) & ok
        change = weights - towards.to(weights)
        curvature = change @ matrix @ change
        step = (slope @ change / curvature.clamp(min=torch.finfo(curvature.dtype).tiny)).clamp(0, 1)
        weights = weights - step * change
    return weights.to(gram.dtype)
