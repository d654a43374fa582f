"""The paper's excess-risk estimate, to the letter (He et al., ICML 2024, Eq. 6 and 7, https://arxiv.org/abs/2402.02009).

    s_i <- s_i + g_i * g_i                       diag(sum over steps of g g'), this step included
    E_i = sum_k g_ik^2 / (sqrt(s_ik) + 1e-12)    g' diag(...)^(-1/2) g; the factor 1/2 is dropped

At the first step E_i is the L1 norm of the gradient, and E grows in proportion to the loss.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

_EPS = 1e-12
_CHUNK = 2**21
"""Numbers treated at once: what is made on the way then stays in the cache of a CPU, and small on a GPU."""


def accumulate_and_estimate(rows: Tensor, squares: Tensor, ok: Tensor) -> tuple[Tensor, Tensor]:
    """The share of one parameter in E [m], and its new accumulator [m, n]. Tasks not ok keep theirs."""
    risks, (updated,) = over_all_parameters([rows], [squares], ok)
    return risks, updated


def over_all_parameters(rows: Sequence[Tensor], squares: Sequence[Tensor], ok: Tensor) -> tuple[Tensor, list[Tensor]]:
    """E [m], and the new accumulators of all parameters. Small ones are treated together, large ones in parts.

    Tasks not ok have zero rows, so their accumulators stay.
    """
    updated = [torch.empty_like(old) for old in squares]
    shares: list[list[Tensor]] = [[] for _ in rows]
    for group in _groups(rows):
        gradients = [rows[which][span] for which, span in group]
        accumulators = [updated[which][span] for which, span in group]
        for (which, span), gradient, new in zip(group, gradients, accumulators, strict=True):
            torch.addcmul(squares[which][span], gradient, gradient, out=new)
        power, roots = torch._foreach_mul(gradients, gradients), torch._foreach_sqrt(accumulators)
        torch._foreach_add_(roots, _EPS)
        torch._foreach_div_(power, roots)
        for (which, _), part in zip(group, power, strict=True):
            shares[which].append(part.sum(1))
    whole = [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in shares]
    return torch.where(ok, torch.stack(whole).sum(0), 0), updated


def _groups(rows: Sequence[Tensor]) -> Iterator[list[tuple[int, slice]]]:
    """Parameters, or some rows of a large one, that make up a chunk together."""
    group: list[tuple[int, slice]] = []
    room = _CHUNK
    for which, matrix in enumerate(rows):
        tasks, size = matrix.shape
        step = max(1, min(tasks, _CHUNK // max(size, 1)))
        for start in range(0, tasks, step):
            span = slice(start, min(start + step, tasks))
            needed = (span.stop - span.start) * size
            if group and needed > room:
                yield group
                group, room = [], _CHUNK
            group.append((which, span))
            room -= needed
    if group:
        yield group
