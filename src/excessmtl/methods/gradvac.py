"""GradVac: gradients are turned towards each other until they are as similar as they have been on average.

Wang et al., "Gradient Vaccine", ICLR 2021, https://arxiv.org/abs/2010.05874, Algorithm 1. For every task i, p_i = g_i,
and for j != i in random order, with phi = cos(p_i, g_j) and a target rho_ij:
    if phi < rho_ij:   p_i += |p_i| (rho_ij sqrt(1 - phi^2) - phi sqrt(1 - rho_ij^2)) / (|g_j| sqrt(1 - rho_ij^2)) g_j
    rho_ij <- (1 - b) rho_ij + b phi
and d = sum_i p_i. The targets start at 0, where it is `pcgrad`. Computed on coefficients, p_i = sum_k c_ik g_k, so the
Gram matrix is all it takes; one group of all shared parameters (the paper also has one per layer). rho stays below 0.99
in the formula, which divides by zero at 1. The default b = 0.01 is the paper's; LibMTL's is 0.5, with which a target is
little more than the cosines of the last two batches. Without a conflict every weight is 1, and each correction adds to
the total: `scale="sum"` and `"mean"` leave it as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation

_CLOSEST = 0.99


@method("gradvac")
@dataclass(frozen=True)
class GradVac(Probed):
    """Gradients turned towards each other, to their usual similarity."""

    uses_host: ClassVar[bool] = True
    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False

    rate: float = 0.01
    """b, the share of the newest cosine in the target."""
    seed: int = 0
    """Of the balancer's own random stream."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate must be between 0 and 1, found {self.rate}")

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """rho = 0."""
        return {"targets": torch.zeros(tasks, tasks)}

    def update(self, state: State, seen: Observation) -> Decision:
        """All rows i at once; w_k = sum_i c_ik, the multiplier of g_k in d."""
        m, gram, targets = seen.tasks, seen.gram, state["targets"]
        order = torch.rand(m, m, generator=seen.generator, device="cpu").argsort(1).to(gram.device, non_blocking=True)
        rows = torch.arange(m, device=gram.device)
        lengths = gram.diagonal().clamp(min=0).sqrt()
        coefficients = torch.diag(seen.ok.to(gram))
        for j in order.unbind(1):
            products = coefficients @ gram
            own = (products * coefficients).sum(1).clamp(min=0).sqrt()  # |p_i|
            counts = (j != rows) & seen.ok & seen.ok[j] & (own * lengths[j] > 0)
            size = torch.where(counts, own * lengths[j], 1)
            phi = torch.where(counts, products.gather(1, j[:, None]).squeeze(1) / size, 0).clamp(-1, 1)
            target = targets.gather(1, j[:, None]).squeeze(1)
            rho = target.clamp(max=_CLOSEST)
            amount = _turn(phi, rho) * own / torch.where(counts, lengths[j], 1)
            amount = torch.where(counts & (phi < rho), amount, 0)
            coefficients = coefficients.scatter_add(1, j[:, None], amount[:, None])
            change = torch.where(counts, self.rate * (phi - target), 0)
            targets = targets.scatter_add(1, j[:, None], change[:, None])
        return Decision(coefficients.sum(0), {"targets": targets})


def _turn(phi: Tensor, rho: Tensor) -> Tensor:
    """What has to be added along g, in lengths of p, to turn p from the cosine phi with g to the cosine rho."""
    flat = (1 - rho.square()).sqrt()
    return (rho * (1 - phi.square()).sqrt() - phi * flat) / flat
