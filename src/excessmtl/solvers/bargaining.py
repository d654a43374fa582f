"""The bargaining equation M a = 1/a for a > 0, by Newton's method on a'Ma/2 - sum log a, which is strictly convex."""

import torch
from torch import Tensor

from excessmtl.solvers.conditioning import normalized

_ITERATIONS = 20
_RIDGE = 1e-8


def bargain(gram: Tensor, ok: Tensor) -> Tensor:
    """a, zero for tasks that are not ok or have no gradient.

    Solved for x_i = a_i |g_i|, where the matrix has a unit diagonal, from the best x with equal entries. Each step
    stays positive and takes the best of a few lengths: a step damped by the Newton decrement alone is safe too, but
    takes hundreds of iterations for dozens of tasks. Where gradients cancel the solution runs away to infinity; a
    ridge above the rounding of the Gram matrix stops it, since (ridge) |x|^2 <= m.
    """
    cosines, lengths, active = normalized(gram, ok)
    ridge = max(_RIDGE, len(gram) * torch.finfo(gram.dtype).eps)
    cosines = cosines + ridge * torch.eye(len(gram), dtype=cosines.dtype, device=cosines.device)
    lengths_tried = 0.5 ** torch.arange(8, dtype=cosines.dtype, device=cosines.device)[:, None]
    inside = active.to(cosines)
    total = (inside @ cosines @ inside).clamp(min=ridge)
    x = torch.where(active, (inside.sum() / total).sqrt(), 1)
    for _ in range(_ITERATIONS):
        gradient = cosines @ x - 1 / x
        direction, _ = torch.linalg.solve_ex(cosines + torch.diag(x**-2), gradient[:, None])
        direction = direction.squeeze(1)
        longest = 0.99 / (direction / x).max().clamp(min=0.99)
        tried = x - longest * lengths_tried * direction
        value = 0.5 * ((tried @ cosines) * tried).sum(1) - tried.log().sum(1)
        x = torch.where(direction.isfinite().all(), tried.index_select(0, value.argmin()[None]).squeeze(0), x)
    return torch.where(active, x / lengths, 0).to(gram.dtype)
