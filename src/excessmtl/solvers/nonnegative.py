"""min over x >= 0 of x'Qx/2 + c.x, for several c at once, by a primal-dual interior-point method without a branch.

KKT: Qx + c - z = 0, x z = 0, x, z >= 0. Each iteration is a Newton step on these equations with x z = (a fraction of
its present mean), shortened so that x and z stay positive. See Wright, Primal-Dual Interior-Point Methods (1997), ch.
5. The number of iterations is fixed and a step that is not finite is not taken, so the host never waits for the device.
"""

import torch
from torch import Tensor

_RIDGE = 1e-8
"""Keeps the problem regular where gradients are linearly dependent; relative to a unit diagonal."""


def nonnegative(matrix: Tensor, linear: Tensor, active: Tensor, iterations: int = 25) -> Tensor:
    """[k, m] the minimisers for the k rows of `linear`, zero outside `active`.

    `matrix` [m, m] has a unit diagonal, and is the identity outside `active` [m].
    """
    inside = active.to(matrix)
    linear = linear * inside
    size = linear.abs().amax(1, keepdim=True)
    c = linear / torch.where(size > 0, size, 1)
    ridge = max(_RIDGE, 4 * len(matrix) * torch.finfo(torch.float32).eps)
    q = matrix + ridge * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    x = torch.ones_like(c)
    z = torch.ones_like(c)
    for _ in range(iterations):
        products = x * z
        gap = products.mean(1, keepdim=True)
        residual = x @ q + c - z
        right = 0.1 * gap / x - z - residual
        dx = torch.linalg.solve_ex(q + torch.diag_embed(z / x), right[..., None])[0].squeeze(-1)
        dz = 0.1 * gap / x - z - z / x * dx
        step = 0.995 / torch.cat((-dx / x, -dz / z), 1).amax(1, keepdim=True).clamp(min=0.995)
        good = (dx + dz).isfinite().all(1, keepdim=True) & (gap > 1e-18)
        step = torch.where(good, step, 0)
        x = x + step * torch.where(good, dx, 0)
        z = z + step * torch.where(good, dz, 0)
    return x * size * inside


def without_conflict(cosines: Tensor, wanted: Tensor, active: Tensor) -> Tensor:
    """[k, m] the coefficients x >= wanted, rows [k, m], of the shortest combinations: argmin x'Cx.

    sum_i x_i u_i is the projection of sum_i wanted_i u_i onto the dual cone of the unit gradients u: the nearest vector
    that has no negative product with any of them.
    """
    return wanted + nonnegative(cosines, wanted @ cosines, active)
