"""Aligned-MTL: gradients turned so that they are orthogonal and equally long.

Senushkin et al., "Independent Component Alignment for Multi-Task Learning", CVPR 2023,
https://arxiv.org/abs/2305.19000, Algorithm 1. With M = V diag(l) V' and the eigenvalues that are not zero:
    B = sqrt(s) V diag(l)^(-1/2) V',   d = sum_i w_i g_i,   w = B p,   p_i = 1/m
s is the least eigenvalue ("min", the paper's), their median, or their mean ("rmse"). The matrix B G has all singular
values equal to sqrt(s), a condition number of one. Eigenvalues below m times the rounding of the largest are left out.
`probe="representation"` is the authors' upper-bound variant. Others drop the factor 1/m.
The length of d is the method's own, so `scale="sum"` and `"mean"` leave it. An eigendecomposition waits for the device.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from excessmtl.methods.base import Decision, Heads, Probed, State, method
from excessmtl.methods.observation import Observation
from excessmtl.solvers.conditioning import precise

_MODES = ("min", "median", "rmse")


@method("aligned_mtl")
@dataclass(frozen=True)
class AlignedMTL(Probed):
    """Gradients made orthogonal and equally long."""

    uses_host: ClassVar[bool] = True
    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False

    size: str = "min"
    """What the common length is taken from: "min", "median" or "rmse"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size not in _MODES:
            raise ValueError(f"size must be one of {list(_MODES)}, found {self.size!r}")

    def update(self, state: State, seen: Observation) -> Decision:
        """w = B p."""
        gram = precise(seen.gram)
        largest = gram.diagonal().max().clamp(min=torch.finfo(torch.float32).tiny)
        values, vectors = torch.linalg.eigh((gram + gram.T) / (2 * largest))
        kept = values > values[-1] * len(gram) * torch.finfo(seen.gram.dtype).eps
        values = torch.where(kept, values, torch.inf)
        count = kept.sum()
        if self.size == "min":
            chosen = values.min()
        elif self.size == "median":
            chosen = values.sort().values.gather(0, ((count - 1) // 2).clamp(min=0)[None]).squeeze(0)
        else:
            chosen = torch.where(kept, values, 0).sum() / count.clamp(min=1)
        share = seen.ok.to(gram) / seen.ok.sum().clamp(min=1)
        scales = torch.where(kept, (chosen / values).sqrt(), 0)
        weights = torch.where(seen.ok, vectors @ (scales * (vectors.T @ share)), 0)
        # No gradient at all: there is nothing to align.
        return Decision(torch.where(count > 0, weights, share).to(seen.gram.dtype), state)
