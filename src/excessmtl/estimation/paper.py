"""The paper's excess-risk estimate, to the letter (He et al., ICML 2024, Eq. 6 and 7, https://arxiv.org/abs/2402.02009).

    s_i <- s_i + g_i * g_i                       diag(sum over steps of g g'), this step included
    E_i = sum_k g_ik^2 / (sqrt(s_ik) + 1e-12)    g' diag(...)^(-1/2) g; the factor 1/2 is dropped

At the first step E_i is the L1 norm of the gradient, and E grows in proportion to the loss.
"""

import torch
from torch import Tensor

_EPS = 1e-12
_CHUNK = 2**21
"""Numbers treated at once: what is made on the way then stays in the cache of a CPU, and small on a GPU."""


def accumulate_and_estimate(rows: Tensor, squares: Tensor, ok: Tensor) -> tuple[Tensor, Tensor]:
    """The share of one parameter in E [m], and its new accumulator [m, n]. Tasks not ok (zero rows) keep theirs."""
    updated, shares = torch.empty_like(squares), []
    at_once = max(1, _CHUNK // max(rows.shape[1], 1))
    for g, old, new, takes_part in zip(*(part.split(at_once) for part in (rows, squares, updated, ok)), strict=True):  # type: ignore[no-untyped-call]
        power = g.square()
        torch.addcmul(old, power, takes_part[:, None].to(power.dtype), out=new)
        shares.append(power.div_(new.sqrt().add_(_EPS)).sum(1))
    return torch.cat(shares), updated
