"""Losses of single elements to one number, over the elements that have a label."""

import torch
from torch import Tensor


def filled(input: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Both in fp32, and which elements count; what does not count is 0, so that it makes no NaN gradient."""
    if input.shape != target.shape:
        raise ValueError(
            f"target must have the shape of the input, {list(input.shape)}, found {list(target.shape)}; reshape one"
        )
    counts = target == target  # not NaN
    counts = counts if mask is None else counts & mask
    return torch.where(counts, input.float(), 0.0), torch.where(counts, target.float(), 0.0), counts


def reduced(losses: Tensor, counts: Tensor, reduction: str) -> Tensor:
    """Over the elements that count."""
    losses = torch.where(counts, losses, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() / counts.sum() if reduction == "mean" else losses.sum()


def check_reduction(reduction: str) -> str:
    """The reduction, or a ValueError."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', found {reduction!r}")
    return reduction
