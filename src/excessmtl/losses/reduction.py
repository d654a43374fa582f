"""Losses of single elements to one number, over the elements that have a label."""

from functools import partial
from typing import Any

import torch
from torch import Tensor


def check_shapes(input: torch.Size, target: torch.Size) -> None:
    """A ValueError where they would be broadcast."""
    if input != target:
        raise ValueError(f"target must have the shape of the input, {list(input)}, found {list(target)}; reshape one")


def counted(input: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Which targets count: not NaN, and in the mask."""
    check_shapes(input.shape, target.shape)
    return target == target if mask is None else (target == target) & mask


def filled(input: Tensor, target: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Both in fp32; what does not count is 0, so that it makes no NaN gradient."""
    return torch.where(counts, input.float(), 0.0), torch.where(counts, target.float(), 0.0)


def broadcast(values: Tensor, to: Tensor) -> Tensor:
    """[losses] values in the dimensions of [losses, ...]."""
    return values.view(-1, *(1 for _ in to.shape[1:]))


def masked_mean(values: Tensor, labelled: Tensor, dim: tuple[int, ...]) -> Tensor:
    """The mean over the labelled entries along `dim`; 0 where there is none. Nothing is read from the device."""
    wide = torch.promote_types(values.dtype, torch.float32)
    return torch.where(labelled, values, 0).sum(dim, dtype=wide) / labelled.sum(dim).clamp(min=1)


def missing(target: Tensor, ignore: int) -> Tensor:
    """Where there is no label: NaN or `ignore`; among floats, where 0 may be a label, only a negative one."""
    if target.is_floating_point():
        return target.isnan() | (target == ignore) if ignore < 0 else target.isnan()
    return target.long() == ignore  # in a byte -100 would be 156


def with_one_mark(target: Tensor, loss: Any, ignore: int) -> Tensor:
    """The target with `ignore` where there is what the loss itself takes for no label, its `ignore_index`."""
    own = loss.keywords.get("ignore_index") if isinstance(loss, partial) else getattr(loss, "ignore_index", None)
    if not isinstance(own, int) or own == ignore or target.is_floating_point():
        return target
    return target.long().masked_fill(target.long() == own, ignore)


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
