"""CAGrad's inner problem: the combination of tasks that the step has to please most."""

import torch
from torch import Tensor

from excessmtl.solvers.conditioning import normalized
from excessmtl.solvers.interior_point import minimize

_SMOOTHING = 1e-8
"""Under the root, relative to a unit gradient: where gradients cancel, the norm has no derivative."""


def worst_case(gram: Tensor, ok: Tensor, c: float) -> Tensor:
    """Coefficients of d = g_0 + c |g_0| g_w / |g_w|, where w minimises g_w.g_0 + c |g_0| |g_w| on the simplex.

    g_0 is the mean over the tasks that are ok. Solved for x_i = w_i |g_i| with everything divided by |g_0|, which makes
    it free of scale. A zero gradient counts in the mean but takes no part in the worst case: no step improves it.
    """
    cosines, lengths, active = normalized(gram, ok)
    mean = ok.to(lengths) / ok.sum().clamp(min=1)
    pull = torch.where(active, mean * lengths, 0)
    size = (pull @ cosines @ pull).clamp(min=0).sqrt()
    slope = torch.where(active, cosines @ pull / torch.where(size > 0, size, 1), 0)
    inside = torch.where(active[:, None] & active, cosines, 0)
    outside = torch.diag((~active).to(cosines))

    def derivatives(x: Tensor) -> tuple[Tensor, Tensor]:
        pulled = inside @ x
        norm = (x @ pulled + _SMOOTHING * x @ x).clamp(min=_SMOOTHING**2).sqrt()
        unit = pulled / norm
        return slope + c * unit, c / norm * (inside - unit[:, None] * unit) + outside

    prices = torch.where(active, lengths, torch.inf).min() / lengths
    x = minimize(derivatives, prices, active, iterations=40)
    norm = (x @ inside @ x + _SMOOTHING * x @ x).clamp(min=0).sqrt()
    added = torch.where(norm > 0, c * size / torch.where(norm > 0, norm, 1), 0) * x / lengths
    return (mean + added).to(gram.dtype)
