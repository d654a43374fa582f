"""The Euclidean projection onto the simplex {w >= 0, sum w = 1}, by sorting, without a host read."""

import torch
from torch import Tensor


def project(values: Tensor, ok: Tensor) -> Tensor:
    """The nearest point of the simplex of the tasks that are ok; zero for the others, and where none is.

    Held & Wolfe & Crowder 1974: w = max(v - t, 0) with the t for which the entries sum to one.
    """
    lowest = torch.finfo(values.dtype).min / 4
    # The projection does not change with a common shift, and numbers near zero are rounded least.
    values = (values - torch.where(ok, values, lowest).max()).clamp(min=lowest / 2)
    ordered = torch.where(ok, values, lowest).sort(descending=True).values
    count = torch.arange(1, len(values) + 1, dtype=values.dtype, device=values.device)
    thresholds = (torch.where(ordered > lowest, ordered, 0).cumsum(0) - 1) / count
    largest = ((ordered > thresholds) & (ordered > lowest)).sum().clamp(min=1)
    threshold = thresholds.gather(0, (largest - 1)[None])
    projected = torch.where(ok, (values - threshold).clamp(min=0), 0)
    return projected / projected.sum().clamp(min=torch.finfo(projected.dtype).tiny)
