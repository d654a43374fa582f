"""PCGrad: where two task gradients conflict, each is projected onto the normal plane of the other.

Yu et al., NeurIPS 2020, https://arxiv.org/abs/2001.06782, Algorithm 1:
    p_i = g_i; for j != i in random order: if p_i . g_j < 0, p_i -= (p_i . g_j / |g_j|^2) g_j;   d = sum_i p_i
Computed on coefficients, p_i = sum_k c_ik g_k, so the Gram matrix is all it takes. Projections are onto the original
g_j. Some implementations let j = i, which for three or more tasks can project a task against itself.
Without a conflict every weight is 1, and each conflict adds to the total: `scale="sum"` and `"mean"` leave it as it is.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation


@method("pcgrad")
@dataclass(frozen=True)
class PCGrad(Probed):
    """Conflicting gradients projected onto each other's normal plane."""

    uses_host: ClassVar[bool] = True
    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False

    seed: int = 0
    """Of the balancer's own random stream."""

    def update(self, state: State, seen: Observation) -> Decision:
        """All rows i at once; w_k = sum_i c_ik, the multiplier of g_k in d."""
        m, gram = seen.tasks, seen.gram
        order = torch.rand(m, m, generator=seen.generator, device="cpu").argsort(1).to(gram.device, non_blocking=True)
        rows = torch.arange(m, device=gram.device)
        squares = gram.diagonal()
        coefficients = torch.diag(seen.ok.to(gram))
        for j in order.unbind(1):
            product = (coefficients @ gram).gather(1, j[:, None]).squeeze(1)
            conflict = (product < 0) & (j != rows) & (squares[j] > 0)
            amount = torch.where(conflict, product / torch.where(conflict, squares[j], 1), 0)
            coefficients = coefficients.scatter_add(1, j[:, None], -amount[:, None])
        return Decision(coefficients.sum(0), state)
