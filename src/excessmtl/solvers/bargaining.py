"""The bargaining equation M a = 1/a for a > 0, by damped Newton on a'Ma/2 - sum log a."""

import torch
from torch import Tensor

from excessmtl.solvers.conditioning import normalized

_ITERATIONS = 40
_RIDGE = 1e-8
"""On the cosines. Where gradients cancel the solution runs away to infinity; this caps it at 1/sqrt(ridge) or so."""


def bargain(gram: Tensor, ok: Tensor) -> Tensor:
    """a, zero for tasks that are not ok or have no gradient.

    Solved for x_i = a_i |g_i|, where the matrix has a unit diagonal and x = 1 is a good start. The step is damped by
    the Newton decrement, which keeps x positive and makes every iteration go down (self-concordance).
    """
    cosines, lengths, active = normalized(gram, ok)
    cosines = cosines + _RIDGE * torch.eye(len(gram)).to(cosines)
    x = torch.ones_like(lengths)
    for _ in range(_ITERATIONS):
        gradient = cosines @ x - 1 / x
        hessian = cosines + torch.diag(x**-2)
        direction, _ = torch.linalg.solve_ex(hessian, gradient[:, None])
        direction = direction.squeeze(1)
        decrement = (gradient @ direction).clamp(min=0).sqrt()
        x = x - direction * torch.where(decrement < 0.25, 1.0, 1 / (1 + decrement))
    return torch.where(active, x / lengths, 0).to(gram.dtype)
