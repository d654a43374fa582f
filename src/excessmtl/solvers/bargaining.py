"""The bargaining equation M a = a^(-p) for a > 0, by Newton's method on a'Ma/2 - sum phi(a), which is strictly convex.

phi' = a^(-p): phi is the logarithm for p = 1, where the equation is that of Nash, and a^(1-p) / (1-p) otherwise.
"""

import torch
from torch import Tensor

from excessmtl.solvers.conditioning import normalized

_ITERATIONS = 20
_RIDGE = 1e-8


def bargain(gram: Tensor, ok: Tensor, power: float = 1.0) -> Tensor:
    """a, zero for tasks that are not ok or have no gradient.

    Solved for x_i = a_i |g_i|, where the matrix has a unit diagonal: C x = b x^(-p) with b_i = |g_i|^(p-1). It starts
    from the best multiple of the solution for orthogonal gradients. Each step stays positive and takes the best of a
    few lengths: a step damped by the Newton decrement alone is safe too, but takes hundreds of iterations for dozens of
    tasks. Where gradients cancel the solution runs away to infinity; a ridge above the rounding of the Gram matrix
    stops it, since (ridge) |x|^2 <= m for p = 1.
    """
    cosines, lengths, active = normalized(gram, ok)
    ridge = max(_RIDGE, len(gram) * torch.finfo(gram.dtype).eps)
    cosines = cosines + ridge * torch.eye(len(gram), dtype=cosines.dtype, device=cosines.device)
    lengths_tried = 0.5 ** torch.arange(8, dtype=cosines.dtype, device=cosines.device)[:, None]
    # A common factor of b only scales x: without it, numbers stay near one however long the gradients are.
    logarithms = torch.where(active, (power - 1) * lengths.log(), 0)
    middle = logarithms.sum() / active.sum().clamp(min=1)
    b = torch.where(active, logarithms - middle, 0).exp()
    start = torch.where(active, b ** (1 / (1 + power)), 0)
    total = (start @ cosines @ start).clamp(min=ridge)
    x = torch.where(active, start, 1)
    along = torch.where(active, b * x ** (1 - power), 0).sum()
    x = torch.where(active, x * (along / total) ** (1 / (1 + power)), 1)
    for _ in range(_ITERATIONS):
        gradient = cosines @ x - b * x**-power
        direction, _ = torch.linalg.solve_ex(cosines + torch.diag(power * b * x ** (-power - 1)), gradient[:, None])
        direction = direction.squeeze(1)
        longest = 0.99 / (direction / x).max().clamp(min=0.99)
        tried = x - longest * lengths_tried * direction
        gains = tried.log() if power == 1 else tried ** (1 - power) / (1 - power)
        value = 0.5 * ((tried @ cosines) * tried).sum(1) - (b * gains).sum(1)
        x = torch.where(direction.isfinite().all(), tried.index_select(0, value.argmin()[None]).squeeze(0), x)
    x = x * (middle / (1 + power)).exp()
    return torch.where(active, x / lengths, 0).to(gram.dtype)


def shortened(weights: Tensor, gram: Tensor, max_norm: float) -> Tensor:
    """The weights, all times one factor of at most 1, so that the step sum_i w_i g_i is no longer than `max_norm`."""
    length = (weights @ gram @ weights).clamp(min=0).sqrt()
    return weights * (max_norm / length.clamp(min=torch.finfo(length.dtype).tiny)).clamp(max=1)


def check_max_norm(max_norm: float | None) -> None:
    """A ValueError for a length that is not positive."""
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"max_norm must be positive or None, found {max_norm}")
