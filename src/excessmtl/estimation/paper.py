"""The paper's excess-risk estimate, to the letter (He et al., ICML 2024, Eq. 6 and 7, https://arxiv.org/abs/2402.02009).

    s_i <- s_i + g_i * g_i                       diag(sum over steps of g g'), this step included
    E_i = sum_k g_ik^2 / (sqrt(s_ik) + 1e-12)    g' diag(...)^(-1/2) g; the factor 1/2 is dropped

At the first step E_i is the L1 norm of the gradient, and E grows in proportion to the loss.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

_EPS = 1e-12
_CHUNK = {"cpu": 2**18}
_LARGE_CHUNK = 2**25
"""Numbers treated at once: what is made on the way then stays in the cache of a CPU, and small on a GPU."""


def chunks(rows: Tensor, squares: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The columns of both, some at a time."""
    width = max(1, _CHUNK.get(rows.device.type, _LARGE_CHUNK) // len(rows))
    return zip(torch.split(rows, width, dim=1), torch.split(squares, width, dim=1), strict=True)


def excess_risks(rows: Tensor, squares: Tensor) -> Tensor:
    """E [m] of gradients [m, n], with the accumulators [m, n] as they were before this step."""
    total = rows.new_zeros(len(rows))
    for gradient, old in chunks(rows, squares):
        root = torch.addcmul(old.to(gradient.dtype), gradient, gradient).sqrt_().add_(_EPS)
        total += torch.div(gradient, root, out=root).mul_(gradient).sum(1)
    return total


def accumulate_and_estimate(rows: Tensor, squares: Tensor, ok: Tensor) -> tuple[Tensor, Tensor]:
    """E [m] and new accumulators. Tasks not ok have zero rows: they keep theirs."""
    return torch.where(ok, excess_risks(rows, squares), 0), torch.addcmul(squares, rows, rows)
