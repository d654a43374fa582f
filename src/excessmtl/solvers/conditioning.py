"""Gram matrices in a form small dense solvers can digest: float64, bad tasks cut out, unit diagonal."""

import torch
from torch import Tensor


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
