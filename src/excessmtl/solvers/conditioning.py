"""Gram matrices in a form small dense solvers can digest: float64, bad tasks cut out, unit diagonal."""

import torch
from torch import Tensor

_SMALLEST = 1e-7
"""Cosine matrices have their eigenvalues rounded by about this; smaller ones count as zero."""


def precise(values: Tensor) -> Tensor:
    """In float64, where the device has it (mps has not): m x m problems cost nothing and lose digits fast."""
    return values if values.device.type == "mps" else values.double()


def normalized(gram: Tensor, ok: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(C, lengths, active) with C the matrix of cosines, for the active tasks: those ok with a gradient.

    Rows and columns of the others are those of the identity, their length is 1: they touch nobody.
    Working with cosines makes every solver indifferent to the scale of the losses.
    """
    squares = precise(gram.diagonal())
    active = ok & (squares > torch.finfo(torch.float32).tiny)
    lengths = torch.where(active, squares, 1).sqrt()
    cosines = precise(gram) / lengths[:, None] / lengths
    cosines = torch.where(active[:, None] & active, cosines, 0)
    return cosines + torch.diag_embed(1 - cosines.diagonal()), lengths, active


def equal_cosines(cosines: Tensor, active: Tensor) -> Tensor:
    """C^+ 1: the combination of unit gradients that has the product 1 with each of them, where there is one.

    In the least-squares form (C^2 + e^2) x = C 1, which is C^+ 1 for e -> 0: with nearly parallel gradients the plain
    equation turns rounding into huge weights of either sign.
    """
    smallest = _SMALLEST * len(cosines) * torch.eye(len(cosines), dtype=cosines.dtype, device=cosines.device)
    right = cosines @ active.to(cosines)
    x: Tensor = torch.linalg.solve_ex(cosines @ cosines + smallest @ smallest, right[:, None])[0]
    return x.squeeze(1)
