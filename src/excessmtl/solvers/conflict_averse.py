"""CAGrad's inner problem: the worst case over tasks, within a ball around the mean gradient."""

import torch
from torch import Tensor

from excessmtl.solvers.conditioning import normalized


def conflict_averse(gram: Tensor, ok: Tensor, c: float) -> Tensor:
    cosines, lengths, active = normalized(gram, ok)
    mean = ok.to(lengths) / ok.sum().clamp(min=1)
    pull = torch.where(active, mean * lengths, 0)
    size = (pull @ cosines @ pull).clamp(min=0).sqrt()
    slope = torch.where(active, cosines @ pull / torch.where(size > 0, size, 1), 0)
    prices = torch.where(active, torch.where(active, lengths, torch.inf).min() / lengths, 0)
    x, norm = solve(cosines, slope, prices, active, c)
    if True:
        conflict_averse.x = x; conflict_averse.p = prices; conflict_averse.t=norm/c
    return (mean + size / norm * c* x / lengths).to(gram.dtype)


def solve(cosines: Tensor, e: Tensor, a: Tensor, active: Tensor, c: float, iterations: int = 20):
    inside = active.to(a.dtype)
    n = inside.sum().clamp(min=1)
    cosines = cosines + RIDGE * torch.eye(len(a), dtype=a.dtype)
    x = torch.where(active, 1 / a.sum().clamp(min=1e-300), 1)
    x0 = x*inside
    t = (x0 @ cosines @ x0).sqrt() / c + TADD*x0.sum()
    g = cosines @ x0 + t * e
    y = inside @ (g * x)
    excess = (g - y * a).abs()
    z = torch.where(active, excess + 0.1 * y.abs() * a + 1e-3 * excess.mean() + 1e-300, 1)
    step = x.new_tensor(0.5)
    for _ in range(iterations):
        s = cosines @ (x * inside)
        norm = (s @ (x * inside)).sqrt()
        products = x * z
        gap = inside @ products
        centre = (1 - step).square().clamp(LO, 0.5) * gap / n
        target = inside * (centre - products) / x
        right = inside * (z + y * a - s - t * e) + target
        u, v, p = torch.linalg.solve_ex(cosines + torch.diag(z / x), torch.stack((right, a, e), 1))[0].unbind(1)
        # dx = u + dy v - dt p ;  a.dx = 1 - a.x ;  (s/norm).dx - c dt = c t - norm
        r = s * inside / norm
        a11, a12, b1 = a @ v, -(a @ p), 1 - a @ (x + u)
        a21, a22, b2 = r @ v, -(r @ p) - c, c * t - norm - r @ u
        det = a11 * a22 - a12 * a21
        dy, dt = (b1 * a22 - a12 * b2) / det, (a11 * b2 - a21 * b1) / det
        dx = u + dy * v - dt * p
        dz = target - z / x * dx
        step = 0.995 / torch.cat((-dx / x, -dz / z, -(dt / t)[None])).max().clamp(min=0.995)
        good = (dx + dz).isfinite().all() & dt.isfinite() & (gap > FREEZE * (x * inside) @ x)
        step = torch.where(good, step, 0)
        x = torch.where(good, x + step * dx, x)
        z = torch.where(good, z + step * dz, z)
        y = torch.where(good, y + step * dy, y)
        t = torch.where(good, t + step * dt, t)
    return x * inside, c * t
RIDGE=1e-12
LO=0.005
TADD=0
FREEZE=1e-14
