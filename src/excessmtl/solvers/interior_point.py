"""Smooth convex functions over the simplex, by a primal-dual interior-point method without a branch.

    minimise f(x)  subject to  a.x = 1,  x >= 0
KKT: grad f(x) - y a - z = 0, a.x = 1, x z = 0, x, z >= 0. Each iteration is a Newton step on these equations
with x z = (a fraction of its present mean), shortened so that x and z stay positive; the fraction is small
after a long step. See Wright, Primal-Dual Interior-Point Methods (1997), ch. 5. The number of iterations is
fixed and a step that is not finite is not taken, so the host never waits for the device.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Derivatives = Callable[[Tensor], tuple[Tensor, Tensor]]
"""x -> gradient [m] and Hessian [m, m] of f."""


def minimize(derivatives: Derivatives, prices: Tensor, active: Tensor, iterations: int = 20) -> Tensor:
    """argmin of f over {x >= 0, prices.x = 1}, zero outside `active`.

    `prices` (a above) are positive where active. Rows and columns of the Hessian outside `active` must be
    those of the identity, so that nothing there can touch what is inside.
    """
    inside = active.to(prices.dtype)
    a, n = torch.where(active, prices, 0), inside.sum().clamp(min=1)
    x = torch.where(active, 1 / a.sum().clamp(min=torch.finfo(a.dtype).tiny), 1)
    gradient, _ = derivatives(x)
    y = inside @ (gradient * x)
    excess = (gradient - y * a).abs()
    z = torch.where(active, excess + 0.1 * y.abs() * a + 1e-3 * excess.mean() + torch.finfo(a.dtype).tiny, 1)
    step = x.new_full((), 0.5)
    for _ in range(iterations):
        gradient, hessian = derivatives(x)
        products = x * z
        gap = inside @ products
        centre = (1 - step).square().clamp(0.005, 0.5) * gap / n
        target = inside * (centre - products) / x
        right = inside * (z + y * a - gradient) + target
        u, v = torch.linalg.solve_ex(hessian + torch.diag(z / x), torch.stack((right, a), 1))[0].unbind(1)
        dy = (1 - a @ (x + u)) / (a @ v)
        dx = u + dy * v
        dz = target - z / x * dx
        step = 0.995 / torch.cat((-dx / x, -dz / z)).max().clamp(min=0.995)
        # Beyond this gap the system is all rounding where the minimum is not unique.
        good = (dx + dz).isfinite().all() & (gap > 1e-14 * (inside * x) @ x)
        step = torch.where(good, step, 0)
        x = torch.where(good, x + step * dx, x)
        z = torch.where(good, z + step * dz, z)
        y = torch.where(good, y + step * dy, y)
    return x * inside
